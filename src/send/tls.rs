//! Enters: the certificates of an endpoint. Leaves: what makes TLS connections to it.
//!
//! Verification has no off switch: the system's certificates decide, or the endpoint's own CA instead of them.

use std::error::Error;
use std::io;

use openssl::error::ErrorStack;
use openssl::ssl::{self, SslConnector, SslMethod, SslVersion};
use openssl::x509::store::X509StoreBuilder;

use crate::config::Certificates;

pub fn connector(certificates: &Certificates) -> Result<SslConnector, ErrorStack> {
    let mut builder = SslConnector::builder(SslMethod::tls_client())?;
    builder.set_min_proto_version(Some(SslVersion::TLS1_2))?;
    if certificates.ca.is_empty() {
        // The linked OpenSSL is our own build and knows no certificates: the system's are named to it.
        if let Some(file) = openssl_probe::probe().cert_file {
            builder.set_ca_file(file)?;
        }
    } else {
        // A store of its own: what the builder found in the environment is not trusted beside it.
        let mut store = X509StoreBuilder::new()?;
        for certificate in &certificates.ca {
            store.add_cert(certificate.clone())?;
        }
        builder.set_cert_store(store.build());
    }
    if let Some(client) = &certificates.client {
        builder.set_certificate(&client.certificate)?;
        for certificate in &client.chain {
            builder.add_extra_chain_cert(certificate.clone())?;
        }
        builder.set_private_key(&client.key)?;
    }
    builder.set_alpn_protos(b"\x08http/1.1")?;
    Ok(builder.build())
}

/// The alerts by which a server turns our certificate, or its absence, down: bad, unsupported, revoked, expired, unknown,
/// unknown CA, access denied, signature wrong, certificate required.
const CERTIFICATE_ALERTS: [i32; 9] = [42, 43, 44, 45, 46, 48, 49, 51, 116];
/// OpenSSL names a received alert as a reason code that is so much higher.
const ALERT_OFFSET: i32 = 1000;

/// Whether a broken connection is the server's refusal of our certificate. In TLS 1.3 it comes after our side of the
/// handshake is over and the request is on its way; the server reads no request before it has accepted the certificate.
pub fn refuses_our_certificate(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        // An `io::Error` gives its inner error's cause as its own, so the inner one is asked for.
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let stack = inner.and_then(|inner| inner.downcast_ref::<ssl::Error>()).and_then(ssl::Error::ssl_error);
        let alert = |error: &openssl::error::Error| error.reason_code() - ALERT_OFFSET;
        if stack.is_some_and(|stack| stack.errors().iter().any(|error| CERTIFICATE_ALERTS.contains(&alert(error)))) {
            return true;
        }
        cause = error.source();
    }
    false
}
