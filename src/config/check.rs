//! Enters: the raw configuration, which has the right shape. Leaves: the checked one, when its values make sense.
//!
//! This file checks what stands outside workflows; `workflow_check.rs` checks each workflow.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::checked::{Admin, Config, Egress, Kafka, Postgres, Token};
use super::node::{Content, Node, Scalar};
use super::problem::{Problem, Problems};
use super::raw::{PostgresTlsMode, RawConfig, RawProperty};
use super::secret::Secret;
use super::shown::shown_duration;
use super::{credentials_check, unsupported, workflow_check};

/// Properties that Oncebox sets itself because a guarantee hangs on them.
const FIXED_PROPERTIES: [&str; 14] = [
    "allow.auto.create.topics",
    "auto.commit.enable",
    "auto.commit.interval.ms",
    "auto.offset.reset",
    "bootstrap.servers",
    "check.crcs",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "enable.partition.eof",
    "group.id",
    "group.protocol",
    "isolation.level",
    "metadata.broker.list",
    "partition.assignment.strategy",
];

/// A token below this length is warned about.
const SHORT_TOKEN: usize = 16;

/// What a check needs to report: where things were written, and where problems go.
pub struct Report<'a> {
    pub tree: &'a Node,
    pub problems: &'a mut Problems,
    pub warnings: &'a mut Problems,
}

impl Report<'_> {
    pub fn problem(&mut self, pointer: &str, message: impl Into<String>, allowed: &str) {
        self.problems.push(at(self.tree, pointer, message.into(), allowed));
    }

    /// The value that a pointer names, with the files that it was read from.
    pub fn secret(&self, pointer: &str, text: &str) -> Secret {
        match &self.tree.nearest(pointer).content {
            Content::Scalar(Scalar { written: Some(written), .. }) => Secret::from_written(text, written),
            Content::Scalar(_) | Content::List(_) | Content::Map(_) => Secret::new(text),
        }
    }

    pub fn warning(&mut self, pointer: &str, message: impl Into<String>, allowed: &str) {
        self.warnings.push(at(self.tree, pointer, message.into(), allowed));
    }
}

fn at(tree: &Node, pointer: &str, message: String, allowed: &str) -> Problem {
    let node = tree.nearest(pointer);
    let problem = Problem::new(node.place.clone(), node.as_written(message)).about(pointer);
    if allowed.is_empty() { problem } else { problem.allowed(allowed) }
}

pub fn check(raw: &RawConfig, tree: &Node, problems: &mut Problems, warnings: &mut Problems) -> Option<Config> {
    let mut report = Report { tree, problems, warnings };
    let kafka = kafka(raw, &mut report);
    let postgres = postgres(raw, &mut report);
    let admin = admin(raw, &mut report);
    let egress = egress(raw, &mut report);
    let tracing = tracing(raw, &mut report);
    if raw.defaults.id.is_some() {
        report.problem("/defaults/id", "`id` cannot be a default", "an id in each workflow");
    }
    let mut first_use: HashMap<&str, usize> = HashMap::new();
    let mut workflows = Vec::new();
    for (index, workflow) in raw.workflows.iter().enumerate() {
        if let Some(id) = &workflow.id
            && let Some(first) = first_use.insert(id, index)
        {
            let other = tree.nearest(&format!("/workflows/{first}/id")).place.clone();
            report.problem(
                &format!("/workflows/{index}/id"),
                format!("workflow id `{id}` is used twice"),
                &format!("another id; the first is at {other}"),
            );
        }
        let former = workflow.former_id.as_deref().filter(|former| !former.is_empty());
        if let Some(former) = former
            && raw.workflows.iter().any(|other| other.id.as_deref() == Some(former))
        {
            report.problem(
                &format!("/workflows/{index}/formerId"),
                format!("`{former}` is still configured, so it cannot be taken over"),
                "the id of a workflow that is no longer configured",
            );
        }
        workflows.extend(workflow_check::check(workflow, index, &mut report).map(Arc::new));
    }
    let shutdown_grace = raw.shutdown_grace.map_or(Duration::from_secs(30), |s| s.0);
    for workflow in workflows.iter().filter(|w| w.endpoint.timeout > shutdown_grace) {
        report.warning(
            &format!("/workflows/{}/endpoint/timeout", workflow.index),
            "longer than shutdownGrace: a restart leaves slow requests in doubt",
            &format!("at most shutdownGrace, which is {}", shown_duration(shutdown_grace)),
        );
    }
    let unsupported = unsupported::in_config(raw, &mut report);
    Some(Config { kafka, postgres: postgres?, admin: admin?, egress, tracing, shutdown_grace, workflows, unsupported })
}

fn kafka(raw: &RawConfig, report: &mut Report<'_>) -> Kafka {
    let mut properties = std::collections::BTreeMap::new();
    for (name, value) in &raw.kafka.properties {
        if FIXED_PROPERTIES.contains(&name.as_str()) {
            report.problem(
                &format!("/kafka/properties/{name}"),
                format!("`{name}` is set by Oncebox, because a guarantee hangs on it"),
                "any other librdkafka property",
            );
        }
        let text = match value {
            RawProperty::Text(text) => text.clone(),
            RawProperty::Number(number) => number.to_string(),
            RawProperty::Switch(switch) => switch.to_string(),
        };
        properties.insert(name.clone(), Secret::new(text));
    }
    let brokers = raw.kafka.brokers.clone().filter(|b| !b.is_empty()).unwrap_or_else(|| {
        std::env::var("KAFKA_BROKERS").ok().filter(|b| !b.is_empty()).unwrap_or_else(|| "localhost:9092".to_owned())
    });
    Kafka {
        brokers,
        cluster: raw.kafka.cluster.clone().filter(|c| !c.is_empty()),
        group_prefix: raw.kafka.group_prefix.clone().filter(|p| !p.is_empty()).unwrap_or_else(|| "oncebox".to_owned()),
        properties,
    }
}

fn postgres(raw: &RawConfig, report: &mut Report<'_>) -> Option<Postgres> {
    let given = |text: &Option<String>| text.clone().filter(|t| !t.is_empty());
    let url = given(&raw.postgres.url).or_else(|| std::env::var("DATABASE_URL").ok().filter(|u| !u.is_empty()));
    let Some(url) = url else {
        report.problem("/postgres", "`postgres.url` is missing", "url: ${DATABASE_URL}, or DATABASE_URL set");
        return None;
    };
    let direct = given(&raw.postgres.direct_url);
    let from_url = UrlTls::read(&url, "/postgres/url", report);
    let from_direct = direct.as_ref().map(|text| UrlTls::read(text, "/postgres/directUrl", report));
    if from_direct
        .as_ref()
        .is_some_and(|tls| tls.mode.is_some() && tls.mode != from_url.mode && raw.postgres.tls.mode.is_none())
    {
        report.problem(
            "/postgres/directUrl",
            "its sslmode is not that of `url`",
            "the same sslmode, or postgres.tls.mode",
        );
    }
    for (pointer, text) in [("/postgres/url", Some(&url)), ("/postgres/directUrl", direct.as_ref())] {
        if text.is_some_and(|t| UrlTls::strip(t).parse::<tokio_postgres::Config>().is_err()) {
            report.problem(
                pointer,
                "not a PostgreSQL URL (in one, `@ / : ? # %` of a password are percent-encoded)",
                "postgresql://user:password@host:port/database, or host=.. user=.. password='..'",
            );
        }
    }
    let mode = raw.postgres.tls.mode.or(from_url.mode).unwrap_or(PostgresTlsMode::Prefer);
    let ca = given(&raw.postgres.tls.ca).or(from_url.ca).or(from_direct.and_then(|tls| tls.ca));
    if ca.is_some() && !mode.verifies() {
        report.warning(
            "/postgres/tls/ca",
            "the CA is not looked at: this mode takes any server for yours",
            "the mode verify-full, or verify-ca, beside it",
        );
    }
    Some(Postgres {
        direct_url: Secret::new(UrlTls::strip(direct.as_ref().unwrap_or(&url))),
        url: Secret::new(UrlTls::strip(&url)),
        schema: given(&raw.postgres.schema).unwrap_or_else(|| "oncebox".to_owned()),
        pool_size: raw.postgres.pool_size.unwrap_or(8) as usize,
        tls_mode: mode,
        tls_ca: ca.map(Into::into),
    })
}

impl Postgres {
    /// The same schema and settings on another database; nothing when the text is not a URL of one.
    pub fn at(&self, url: &str) -> Option<Self> {
        let stripped = UrlTls::strip(url);
        let known = ["postgresql://", "postgres://"].iter().any(|scheme| url.starts_with(scheme));
        stripped.parse::<tokio_postgres::Config>().ok().filter(|_| known)?;
        let (tls, unknown) = UrlTls::parse(url);
        Some(Self {
            direct_url: Secret::new(stripped.clone()),
            url: Secret::new(stripped),
            tls_mode: tls.mode.unwrap_or(self.tls_mode),
            tls_ca: tls.ca.map(Into::into).or_else(|| self.tls_ca.clone()),
            ..self.clone()
        })
        .filter(|_| unknown.is_none())
    }
}

/// `sslmode` and `sslrootcert` of a URL: tokio-postgres refuses verify-ca, verify-full and sslrootcert, so they are
/// taken out of the URL and applied by our own connector.
struct UrlTls {
    mode: Option<PostgresTlsMode>,
    ca: Option<String>,
}

impl UrlTls {
    fn read(text: &str, pointer: &str, report: &mut Report<'_>) -> Self {
        let (tls, unknown) = Self::parse(text);
        if let Some(written) = unknown {
            let allowed = "disable, prefer, require, verify-ca, verify-full";
            report.problem(pointer, format!("sslmode `{written}` is not one"), allowed);
        }
        tls
    }

    /// With the sslmode that is none, if there is one.
    fn parse(text: &str) -> (Self, Option<String>) {
        let value = |name: &str| {
            let query = text.split_once('?')?.1;
            query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')).map(str::to_owned)
        };
        let written = value("sslmode");
        let mode = written.clone().and_then(|m| serde_json::from_value(m.into()).ok());
        (Self { mode, ca: value("sslrootcert") }, written.filter(|_| mode.is_none()))
    }

    fn strip(text: &str) -> String {
        let Some((base, query)) = text.split_once('?') else { return text.to_owned() };
        let kept: Vec<&str> = query
            .split('&')
            .filter(|pair| !pair.starts_with("sslmode=") && !pair.starts_with("sslrootcert="))
            .collect();
        if kept.is_empty() { base.to_owned() } else { format!("{base}?{}", kept.join("&")) }
    }
}

fn admin(raw: &RawConfig, report: &mut Report<'_>) -> Option<Admin> {
    let text = raw.admin.listen.clone().filter(|l| !l.is_empty()).unwrap_or_else(|| "127.0.0.1:9464".to_owned());
    let Ok(listen) = text.replace("localhost:", "127.0.0.1:").parse::<SocketAddr>() else {
        report.problem("/admin/listen", format!("`{text}` is not an address"), "address:port, such as 127.0.0.1:9464");
        return None;
    };
    if !listen.ip().is_loopback() && raw.admin.tokens.is_empty() {
        report.problem(
            "/admin/listen",
            format!("`{text}` can be reached from outside, and there are no tokens"),
            "a loopback address, or admin.tokens",
        );
    }
    let mut tokens: Vec<Token> = Vec::new();
    for (index, token) in raw.admin.tokens.iter().enumerate() {
        let at = |key: &str| format!("/admin/tokens/{index}/{key}");
        if token.name.is_empty() || tokens.iter().any(|known| known.name == token.name) {
            let allowed = "a name of its own for each, because the audit shows it";
            report.problem(&at("name"), format!("the name `{}` is empty or used twice", token.name), allowed);
        }
        if token.token.is_empty() {
            report.problem(&at("token"), "the token is empty", "a secret, such as `openssl rand -base64 32` makes");
        } else if token.token.len() < SHORT_TOKEN {
            let allowed = "a longer one, such as `openssl rand -base64 32` makes";
            report.warning(&at("token"), format!("shorter than {SHORT_TOKEN} characters: it can be guessed"), allowed);
        }
        let secret = report.secret(&at("token"), &token.token);
        tokens.push(Token { name: token.name.clone(), secret, role: token.role });
    }
    Some(Admin { listen, tokens })
}

fn tracing(raw: &RawConfig, report: &mut Report<'_>) -> Option<url::Url> {
    let text = raw.tracing.otlp.as_deref().filter(|text| !text.is_empty())?;
    let url = url::Url::parse(text).ok().filter(|url| ["http", "https"].contains(&url.scheme()) && url.has_host());
    if url.is_none() {
        let allowed = "an address that takes OTLP over HTTP, such as http://collector:4318";
        report.problem("/tracing/otlp", format!("`{text}` is not an address"), allowed);
    }
    url
}

fn egress(raw: &RawConfig, report: &mut Report<'_>) -> Egress {
    let mut allow = Vec::new();
    for (index, text) in raw.egress.allow.iter().enumerate() {
        match text.parse() {
            Ok(net) => allow.push(net),
            Err(_) => report.problem(
                &format!("/egress/allow/{index}"),
                format!("`{text}` is not a network"),
                "a CIDR such as 10.1.0.0/16 or fd00::/8",
            ),
        }
    }
    Egress { allow, proxy: credentials_check::proxy(raw.egress.proxy.as_deref(), report) }
}
