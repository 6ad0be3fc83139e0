//! The shape of the YAML, key for key, as serde and the JSON Schema see it. Meaning and defaults of the workflow keys
//! are in `raw_workflow.rs`; `check.rs` turns both into the checked `Config`.
//!
//! Every key of the product is here from the first version on. What is optional is an `Option`, so that "not written"
//! and "written with the default" stay apart where that matters.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::raw_workflow::RawWorkflow;
use super::scalar::Span;

/// An Oncebox configuration: a file, or a directory of files that are merged.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RawConfig {
    /// The Kafka cluster that workflows read.
    pub kafka: RawKafka,
    /// A Confluent-compatible schema registry, for the encodings avro, protobuf and jsonSchema.
    pub schema_registry: RawSchemaRegistry,
    /// The database that holds cursors, outbox and dead letters.
    pub postgres: RawPostgres,
    /// Health, metrics, API and dashboard.
    pub admin: RawAdmin,
    /// Where deliveries may connect to.
    pub egress: RawEgress,
    /// How long SIGTERM waits for requests under way; default 30s. Too low repeats slow requests after a restart.
    pub shutdown_grace: Option<Span>,
    /// Traces.
    pub tracing: RawTracing,
    /// Any workflow keys; a workflow overrides them.
    pub defaults: RawWorkflow,
    /// The workflows, each from topics to one endpoint.
    pub workflows: Vec<RawWorkflow>,
}

#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RawKafka {
    /// Bootstrap brokers, comma separated; default ${KAFKA_BROKERS:-localhost:9092}.
    pub brokers: Option<String>,
    /// The namespace inside keys; empty: the cluster id that the brokers report.
    pub cluster: Option<String>,
    /// The consumer group of a workflow is {groupPrefix}.{workflow id}; default oncebox.
    pub group_prefix: Option<String>,
    /// librdkafka properties: security.protocol, sasl.*, ssl.*, fetch.* and so on. Those that would break a guarantee
    /// are refused.
    pub properties: BTreeMap<String, RawProperty>,
}

/// librdkafka takes all its properties as text.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum RawProperty {
    Text(String),
    Number(i64),
    Switch(bool),
}

#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RawSchemaRegistry {
    /// Its base URL; empty: none.
    pub url: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RawPostgres {
    /// postgresql:// URL; default ${DATABASE_URL}.
    pub url: Option<String>,
    /// A session connection past pgbouncer, for LISTEN and migrations; empty: same as url.
    pub direct_url: Option<String>,
    /// The schema that holds every table; default oncebox.
    #[schemars(regex(pattern = r"^[a-z_][a-z0-9_]{0,62}$"))]
    pub schema: Option<String>,
    /// Connections of one process in total, 4 to 200; default 8. Too low makes settling wait behind claims.
    #[schemars(range(min = 4, max = 200))]
    pub pool_size: Option<u32>,
    /// Encryption to Postgres.
    pub tls: RawPostgresTls,
}

#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RawPostgresTls {
    /// Default prefer; also as sslmode in the URL.
    pub mode: Option<PostgresTlsMode>,
    /// A file with the CA's certificates; also as sslrootcert in the URL.
    pub ca: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PostgresTlsMode {
    Disable,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

impl PostgresTlsMode {
    /// Whether the server must have a certificate of the CA.
    pub fn verifies(self) -> bool {
        match self {
            Self::Disable | Self::Prefer | Self::Require => false,
            Self::VerifyCa | Self::VerifyFull => true,
        }
    }
}

#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RawAdmin {
    /// host:port; default 127.0.0.1:9464. Anything but loopback needs tokens.
    pub listen: Option<String>,
    /// Named bearer tokens.
    pub tokens: Vec<RawToken>,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawToken {
    /// The "who" of the audit.
    pub name: String,
    /// The secret, by reference: "${ADMIN_TOKEN}".
    pub token: String,
    /// What it may do.
    pub role: Role,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Role {
    /// Everything.
    Admin,
    /// Look, and change nothing.
    Read,
}

#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RawEgress {
    /// Private CIDRs that endpoints may resolve to.
    pub allow: Vec<String>,
    /// An HTTP CONNECT proxy for deliveries; environment proxies are ignored.
    pub proxy: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RawTracing {
    /// An OTLP endpoint; empty: off.
    pub otlp: Option<String>,
}
