//! The command line's side of the API: one request, one answer, and what an error there means here.

use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use serde::de::DeserializeOwned;

use super::Failure;
use super::access::ASKED_WRONGLY;
use crate::admin::answer::Problem;
use crate::config::{Certificates, Secret};
use crate::send::connect::{Means, Route};
use crate::send::egress::Rules;
use crate::send::{request, tls};

const PATIENCE: Duration = Duration::from_secs(30);
/// For answers that must be worked out.
const LONG_PATIENCE: Duration = Duration::from_secs(3600);

/// A running process, as the command line asks it.
pub struct Client {
    base: url::Url,
    token: Option<Secret>,
    patience: Duration,
}

impl Client {
    pub fn new(base: &str, token: Option<&str>) -> Result<Self, Failure> {
        let base = url::Url::parse(base).ok().filter(|url| ["http", "https"].contains(&url.scheme()) && url.has_host());
        let Some(base) = base else {
            return Err(Failure::Usage("--url: not an address; one looks like http://127.0.0.1:9464".to_owned()));
        };
        Ok(Self { base, token: token.map(Secret::new), patience: PATIENCE })
    }

    /// The same, for what takes as long as it takes.
    pub fn patient(self) -> Self {
        Self { patience: LONG_PATIENCE, ..self }
    }

    pub async fn call<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        body: Option<Vec<u8>>,
    ) -> Result<T, Failure> {
        let answered = tokio::time::timeout(self.patience, self.ask(method, path, body)).await;
        let (status, body) = answered.map_err(|_| anyhow::anyhow!("{} does not answer", self.base))??;
        if (200..300).contains(&status) {
            // What has nothing to say is as good as null.
            let body = if body.is_empty() { Bytes::from_static(b"null") } else { body };
            return Ok(serde_json::from_slice(&body).context("the answer is not of this version")?);
        }
        Err(match serde_json::from_slice::<Problem>(&body) {
            Ok(Problem { error }) if status == 400 || ASKED_WRONGLY.contains(&error.code.as_str()) => {
                Failure::Usage(error.message)
            }
            Ok(Problem { error }) if status == 401 => {
                Failure::Usage(format!("{} (--token, or ONCEBOX_TOKEN)", error.message))
            }
            Ok(Problem { error }) => Failure::Failed(anyhow::anyhow!(error.message)),
            Err(_) => Failure::Failed(anyhow::anyhow!("{} answered {status}", self.base)),
        })
    }

    async fn ask(&self, method: &str, path: &str, body: Option<Vec<u8>>) -> anyhow::Result<(u16, Bytes)> {
        // Wherever an operator says: the rules are for endpoints.
        let everywhere = ["0.0.0.0/0", "::/0"].map(|net| net.parse().expect("a network"));
        let route = Route::new(&self.base, &Rules::new(everywhere.to_vec()));
        let tls = match self.base.scheme() {
            "https" => Some(tls::connector(&Certificates::default()).context("TLS cannot be set up")?),
            _ => None,
        };
        let mut connection = route.connect(&Means { generation: 0, tls, proxy: None }).await?;
        let mut question = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base.path().trim_end_matches('/')))
            .header("host", request::host(&self.base))
            .header("user-agent", request::user_agent());
        if let Some(token) = &self.token {
            question = question.header("authorization", format!("Bearer {}", token.expose()));
        }
        if body.is_some() {
            question = question.header("content-type", "application/json");
        }
        let question = question.body(Full::new(Bytes::from(body.unwrap_or_default())))?;
        let sender = &mut connection.sender;
        let answered = async {
            let answer = sender.send_request(question).await?;
            let status = answer.status().as_u16();
            Ok::<_, hyper::Error>((status, answer.into_body().collect().await?.to_bytes()))
        };
        connection.driver.during(answered).await.with_context(|| format!("asking {}", self.base))
    }
}
