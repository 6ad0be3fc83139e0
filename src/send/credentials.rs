//! Enters: a request that is about to leave. Leaves: the same with everything that proves who sends it, as of now:
//! `Authorization`, headers whose values are secrets, the signature over the bytes that are sent.
//!
//! Secrets that come from files are read again when those change. What cannot be used is not taken: the secrets before
//! it stay, and the log says so once.

use std::sync::{Arc, RwLock};
use std::time::{Instant, SystemTime};

use hyper::header::{AUTHORIZATION, HeaderName, HeaderValue};
use tracing::{info, warn};

use super::connect::{Means, Route};
use super::egress::Rules;
use super::outgoing::Outgoing;
use super::proxy::{Proxy, basic};
use super::secret_files::SecretFiles;
use super::token::{Token, TokenError, Tokens};
use super::{signature, tls};
use crate::config::{
    Auth, Endpoint, Oauth2, Secret, SecretError, SigningKey, SigningKeyError, TlsError, Workflow, is_token,
};
use crate::observe::chain;

/// Why secrets cannot be used. Checked at load; a file may come to hold something else later.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("a secret cannot be read again")]
    Read(#[from] SecretError),
    #[error("endpoint.tls cannot be used")]
    Certificates(#[from] TlsError),
    #[error("TLS cannot be set up")]
    Tls(#[source] openssl::error::ErrorStack),
    #[error("endpoint.signing cannot be used")]
    Signing(#[from] SigningKeyError),
    #[error("the value of the header `{0}` has control characters")]
    Header(String),
    #[error("the bearer token is none")]
    Bearer,
    #[error("egress.proxy is not an HTTP proxy")]
    Proxy,
}

/// A workflow's credentials, kept as its files have them.
pub struct Credentials {
    workflow: Arc<str>,
    live: RwLock<Arc<Live>>,
    /// Held by the one that looks at the files.
    watch: Arc<tokio::sync::Mutex<Watch>>,
    has_files: bool,
    tokens: Option<Arc<Tokens>>,
}

/// Credentials as of one moment.
pub struct Live {
    pub means: Means,
    pub oauth2: Option<Oauth2>,
    headers: Vec<(HeaderName, HeaderValue)>,
    keys: Vec<SigningKey>,
}

struct Watch {
    endpoint: Endpoint,
    proxy: Option<Secret>,
    files: SecretFiles,
    /// The log has been told that the files cannot be used.
    told: bool,
}

/// A request that proves who sends it, and what it goes out with.
pub struct Proven {
    pub request: Outgoing,
    pub live: Arc<Live>,
    pub token: Option<Token>,
}

impl Credentials {
    pub fn new(workflow: &Workflow, rules: &Rules) -> Result<Self, Error> {
        let (endpoint, proxy) = (&workflow.endpoint, rules.proxy());
        let live = Live::new(endpoint, proxy, 1)?;
        let mut paths = endpoint.secret_files();
        paths.extend(proxy.iter().flat_map(|proxy| proxy.files().map(Into::into)));
        let tokens = live.oauth2.as_ref().map(|oauth2| {
            let route = Route::new(&oauth2.token_url, rules);
            Arc::new(Tokens::new(&workflow.id, route, &oauth2.token_url, endpoint.timeout))
        });
        let has_files = !paths.is_empty();
        let files = SecretFiles::new(paths);
        let watch = Watch { endpoint: endpoint.clone(), proxy: proxy.cloned(), files, told: false };
        Ok(Self {
            workflow: Arc::clone(&workflow.id),
            live: RwLock::new(Arc::new(live)),
            watch: Arc::new(tokio::sync::Mutex::new(watch)),
            has_files,
            tokens,
        })
    }

    /// Adds what proves the sender; everything slow in it ends at `deadline`.
    pub async fn prove(
        self: &Arc<Self>,
        mut request: Outgoing,
        deadline: tokio::time::Instant,
    ) -> Result<Proven, Arc<TokenError>> {
        let live = self.current().await;
        let token = match &self.tokens {
            // On the heap, so that an attempt without tokens has no room for them.
            Some(tokens) => Some(Box::pin(tokens.get(&live, deadline)).await?),
            None => None,
        };
        for (name, value) in &live.headers {
            request.set(name.as_str(), value.as_bytes());
        }
        if let Some(token) = &token {
            request.set(AUTHORIZATION.as_str(), token.header().as_bytes());
        }
        if !live.keys.is_empty() {
            sign(&mut request, &live.keys);
        }
        Ok(Proven { request, live, token })
    }

    /// The endpoint answered 401 to this token.
    pub fn refused(&self, token: &Token) {
        if let Some(tokens) = &self.tokens {
            tokens.refused(token);
        }
    }

    /// The credentials, after a look at their files when the last one is a second ago.
    async fn current(self: &Arc<Self>) -> Arc<Live> {
        if self.has_files
            && let Ok(mut watch) = Arc::clone(&self.watch).try_lock_owned()
            && watch.files.is_due(Instant::now())
        {
            let credentials = Arc::clone(self);
            // A file system that hangs holds up this attempt only; the others go on with what is known.
            let looked = tokio::task::spawn_blocking(move || credentials.look(&mut watch)).await;
            looked.expect("looking at files does not panic");
        }
        Arc::clone(&self.live.read().expect("no holder of this lock panics"))
    }

    fn look(&self, watch: &mut Watch) {
        let Some(looks) = watch.files.changed(Instant::now()) else { return };
        match self.read_again(watch) {
            Ok(()) => {
                watch.files.were_read(looks);
                watch.told = false;
            }
            // Being replaced, as a rule: the next look finds it whole.
            Err(error) if !watch.told => {
                watch.told = true;
                let error = chain(&error);
                warn!(workflow = %self.workflow, error, "secrets in files cannot be used; those before stay in use");
            }
            Err(_) => {}
        }
    }

    fn read_again(&self, watch: &mut Watch) -> Result<(), Error> {
        let endpoint = watch.endpoint.read_again()?;
        let proxy = watch.proxy.as_ref().map(Secret::read_again).transpose()?;
        if endpoint.has_the_secrets_of(&watch.endpoint) && proxy == watch.proxy {
            return Ok(());
        }
        let generation = self.live.read().expect("no holder of this lock panics").means.generation + 1;
        let live = Live::new(&endpoint, proxy.as_ref(), generation)?;
        *self.live.write().expect("no holder of this lock panics") = Arc::new(live);
        (watch.endpoint, watch.proxy) = (endpoint, proxy);
        info!(workflow = %self.workflow, "secrets were read again from their files");
        Ok(())
    }
}

impl Live {
    fn new(endpoint: &Endpoint, proxy: Option<&Secret>, generation: u64) -> Result<Self, Error> {
        let mut headers = Vec::new();
        // Those that come from no file are in the request already.
        for (name, value) in endpoint.headers.iter().filter(|(_, value)| value.files().next().is_some()) {
            let mut value = HeaderValue::from_str(value.expose()).map_err(|_| Error::Header(name.clone()))?;
            value.set_sensitive(true);
            headers.push((HeaderName::from_bytes(name.as_bytes()).expect("header names are checked at load"), value));
        }
        let mut oauth2 = None;
        match &endpoint.auth {
            Auth::None => {}
            Auth::Basic { username, password } => {
                headers.push((AUTHORIZATION, basic(username.expose(), password.expose())));
            }
            Auth::Bearer { token } => headers.push((AUTHORIZATION, bearer(token.expose()).ok_or(Error::Bearer)?)),
            Auth::Oauth2(own) => oauth2 = Some(own.clone()),
        }
        let urls = [Some(&endpoint.url), oauth2.as_ref().map(|oauth2| &oauth2.token_url)];
        let secure = urls.into_iter().flatten().any(|url| url.scheme() == "https");
        let certificates = endpoint.tls.certificates()?;
        let tls = secure.then(|| tls::connector(&certificates).map_err(Error::Tls)).transpose()?;
        let proxy = proxy.map(|url| Proxy::new(url).ok_or(Error::Proxy)).transpose()?;
        let keys = endpoint.signing.iter().map(SigningKey::read).collect::<Result<_, _>>()?;
        Ok(Self { means: Means { generation, tls, proxy }, oauth2, headers, keys })
    }
}

/// A `Bearer` credential that no log prints.
pub fn bearer(token: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(&format!("Bearer {token}")).ok().filter(|_| is_token(token))?;
    value.set_sensitive(true);
    Some(value)
}

/// Signs at the last moment: the timestamp is this attempt's own, however long ago the event was made.
fn sign(request: &mut Outgoing, keys: &[SigningKey]) {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let timestamp = i64::try_from(now).expect("seconds since 1970 fit");
    let id = String::from_utf8_lossy(request.header("webhook-id").unwrap_or_default());
    let signature = signature::sign(keys, &id, timestamp, request.body());
    request.set("webhook-timestamp", timestamp.to_string().as_bytes());
    request.set("webhook-signature", signature.as_bytes());
}
