//! The keys below `endpoint`: where a request goes, how it proves who sends it, what an answer means.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::raw_workflow::{Compression, Method};
use super::scalar::{Span, StatusMatch};

#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RawEndpoint {
    /// http:// or https://; no userinfo.
    pub url: Option<String>,
    /// Default POST.
    pub method: Option<Method>,
    /// Extra request headers; those that Oncebox sets cannot be overridden.
    pub headers: BTreeMap<String, String>,
    /// One deadline for connect, TLS, request and answer; default 15s. Too low repeats slow but successful requests.
    pub timeout: Option<Span>,
    /// How bodies travel; default none.
    pub compression: Option<Compression>,
    /// One of basic, bearer, oauth2.
    pub auth: RawAuth,
    /// Own CA; client certificate.
    pub tls: RawEndpointTls,
    /// Standard Webhooks signatures.
    pub signing: RawSigning,
    /// What a status means; anything not listed is retried.
    pub answers: RawAnswers,
    /// How to ask whether a key was processed.
    pub lookup: RawLookup,
}

#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RawAuth {
    /// User name and password.
    pub basic: Option<RawBasic>,
    /// A fixed token.
    pub bearer: Option<RawBearer>,
    /// Client credentials.
    pub oauth2: Option<RawOauth2>,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawBasic {
    /// Without a colon.
    pub username: String,
    /// By reference: "${PASSWORD}" or "${file:/run/secrets/password}".
    pub password: String,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawBearer {
    /// By reference: "${TOKEN}" or "${file:/run/secrets/token}".
    pub token: String,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawOauth2 {
    /// Where tokens are asked for: http:// or https://, under the same egress rules and certificates as the endpoint.
    pub token_url: String,
    /// As the token server knows this relay.
    pub client_id: String,
    /// By reference: "${CLIENT_SECRET}" or "${file:/run/secrets/client}".
    pub client_secret: String,
    /// What the token is to be good for; empty: what the server gives.
    #[serde(default)]
    pub scopes: Vec<String>,
}

#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RawEndpointTls {
    /// A file with CA certificates to trust instead of the system's.
    pub ca: Option<String>,
    /// A file with the client certificate and its chain, in PEM form; needs key.
    pub cert: Option<String>,
    /// A file with its key, in PEM form, without a passphrase.
    pub key: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RawSigning {
    /// Every listed secret signs, for rotation: whsec_ and the base64 of 24 to 64 random bytes, by reference.
    pub secrets: Vec<String>,
}

#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RawAnswers {
    /// Default [2xx].
    pub delivered: Option<Vec<StatusMatch>>,
    /// This key is being processed: tried again soon, uncounted; default [409].
    pub in_progress: Option<Vec<StatusMatch>>,
    /// Refused: dead letter at once; default [400, 413, 414, 415, 422].
    pub rejected: Option<Vec<StatusMatch>>,
    /// The workflow suspends itself; default [410].
    pub gone: Option<Vec<StatusMatch>>,
    /// Failed, and perhaps processed; default [408, 500, 502, 504].
    pub in_doubt: Option<Vec<StatusMatch>>,
}

#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RawLookup {
    /// With {idempotencyKey} in it.
    pub url: Option<String>,
    /// Statuses that mean processed; default [200].
    pub processed: Option<Vec<StatusMatch>>,
    /// Statuses that mean not processed; default [404].
    pub not_processed: Option<Vec<StatusMatch>>,
}
