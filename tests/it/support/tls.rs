//! Certificates of a test's own, and TLS in front of a plain server.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use openssl::asn1::Asn1Time;
use openssl::bn::BigNum;
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::ssl::{Ssl, SslAcceptor, SslAcceptorBuilder, SslMethod, SslVerifyMode};
use openssl::x509::extension::{BasicConstraints, SubjectAlternativeName};
use openssl::x509::store::X509StoreBuilder;
use openssl::x509::{X509, X509Builder, X509NameBuilder};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};

/// A certificate with its key.
#[derive(Clone)]
pub struct Identity {
    pub certificate: X509,
    pub key: PKey<Private>,
}

/// Unix seconds from now: from when and until when a certificate is good.
pub const GOOD: (i64, i64) = (-86_400, 86_400);
pub const EXPIRED: (i64, i64) = (-172_800, -86_400);

impl Identity {
    /// One that signs others, and itself.
    pub fn authority(name: &str) -> Self {
        made(name, &[], GOOD, None)
    }

    /// A certificate for these names and addresses.
    pub fn issue(&self, names: &[&str], validity: (i64, i64)) -> Self {
        made(names[0], names, validity, Some(self))
    }

    /// One that nobody else signed.
    pub fn self_signed(names: &[&str]) -> Self {
        made(names[0], names, GOOD, None)
    }

    /// Writes both as PEM files, and says where.
    pub fn write(&self, folder: &Path, name: &str) -> (PathBuf, PathBuf) {
        let (cert, key) = (folder.join(format!("{name}.crt")), folder.join(format!("{name}.key")));
        std::fs::write(&cert, self.certificate.to_pem().expect("PEM")).expect("written");
        std::fs::write(&key, self.key.private_key_to_pem_pkcs8().expect("PEM")).expect("written");
        (cert, key)
    }

    pub fn acceptor(&self) -> SslAcceptorBuilder {
        let mut builder = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls_server()).expect("an acceptor");
        builder.set_private_key(&self.key).expect("a key");
        builder.set_certificate(&self.certificate).expect("a certificate");
        builder
    }

    /// Clients must show a certificate that this one signed.
    pub fn demanded_by(&self, acceptor: &mut SslAcceptorBuilder) {
        let mut store = X509StoreBuilder::new().expect("a store");
        store.add_cert(self.certificate.clone()).expect("a certificate");
        acceptor.set_verify_cert_store(store.build()).expect("a store");
        acceptor.set_verify(SslVerifyMode::PEER | SslVerifyMode::FAIL_IF_NO_PEER_CERT);
    }
}

fn made(name: &str, names: &[&str], (from, to): (i64, i64), issuer: Option<&Identity>) -> Identity {
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).expect("a curve");
    let key = PKey::from_ec_key(EcKey::generate(&group).expect("a key")).expect("a key");
    let mut subject = X509NameBuilder::new().expect("a name");
    subject.append_entry_by_text("CN", name).expect("a name");
    let subject = subject.build();
    let now = jiff::Timestamp::now().as_second();
    let mut builder: X509Builder = X509::builder().expect("a builder");
    builder.set_version(2).expect("a version");
    let mut serial = BigNum::new().expect("a number");
    serial.rand(120, openssl::bn::MsbOption::MAYBE_ZERO, false).expect("a number");
    builder.set_serial_number(&serial.to_asn1_integer().expect("a number")).expect("a number");
    builder.set_subject_name(&subject).expect("a name");
    builder.set_issuer_name(issuer.map_or(&subject, |i| i.certificate.subject_name())).expect("a name");
    builder.set_pubkey(&key).expect("a key");
    builder.set_not_before(&Asn1Time::from_unix(now + from).expect("a time")).expect("a time");
    builder.set_not_after(&Asn1Time::from_unix(now + to).expect("a time")).expect("a time");
    if names.is_empty() {
        builder.append_extension(BasicConstraints::new().critical().ca().build().expect("one")).expect("an extension");
    } else {
        let mut alternatives = SubjectAlternativeName::new();
        for name in names {
            match name.parse::<std::net::IpAddr>() {
                Ok(_) => alternatives.ip(name),
                Err(_) => alternatives.dns(name),
            };
        }
        let context = builder.x509v3_context(issuer.map(|i| &*i.certificate), None);
        let extension = alternatives.build(&context).expect("an extension");
        builder.append_extension(extension).expect("an extension");
    }
    builder.sign(issuer.map_or(&key, |i| &i.key), MessageDigest::sha256()).expect("a signature");
    Identity { certificate: builder.build(), key }
}

/// TLS in front of a plain server, until it is dropped.
pub struct TlsFront {
    pub address: SocketAddr,
    /// Handshakes that ended well.
    pub accepted: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for TlsFront {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl TlsFront {
    pub async fn start(acceptor: SslAcceptorBuilder, behind: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let accepted = Arc::new(AtomicUsize::new(0));
        let (acceptor, count) = (acceptor.build(), Arc::clone(&accepted));
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(front(
                    stream,
                    Ssl::new(acceptor.context()).expect("TLS"),
                    behind,
                    Arc::clone(&count),
                ));
            }
        });
        Self { address, accepted, task }
    }

    pub fn url(&self) -> String {
        format!("https://{}/events", self.address)
    }
}

async fn front(stream: TcpStream, ssl: Ssl, behind: SocketAddr, accepted: Arc<AtomicUsize>) {
    let mut stream = tokio_openssl::SslStream::new(ssl, stream).expect("TLS");
    if Pin::new(&mut stream).accept().await.is_err() {
        // What the client still sends is read, so that closing does not reset the connection under the alert.
        let mut rest = [0; 4096];
        while matches!(stream.get_mut().read(&mut rest).await, Ok(read) if read > 0) {}
        return;
    }
    accepted.fetch_add(1, Ordering::AcqRel);
    if let Ok(mut server) = TcpStream::connect(behind).await {
        let _ = tokio::io::copy_bidirectional(&mut stream, &mut server).await;
    }
}
