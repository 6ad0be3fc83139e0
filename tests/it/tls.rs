//! TLS and proxies: whom a delivery believes, what it shows of itself, and that nothing of it leaves before that.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use oncebox::send::outcome::{Outcome, Trouble};
use openssl::ssl::{SslConnector, SslMethod, SslVerifyMode, SslVersion};

use crate::support::attempt::{attempt, target, through, workflow};
use crate::support::process::Config;
use crate::support::servers::ProxyServer;
use crate::support::tls::{EXPIRED, GOOD, Identity, TlsFront};
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, eventually};

const DELIVERED: Outcome = Outcome::Answered { status: 200, retry_after: None };
const TLS: Outcome = Outcome::NeverSent(Trouble::Tls);

/// An authority whose certificate is in a file, in a folder that lasts as long as the test.
fn authority() -> (Identity, String, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let authority = Identity::authority("the test's own");
    let (cert, _) = authority.write(folder.path(), "ca");
    (authority, cert.display().to_string(), folder)
}

#[tokio::test]
async fn a_server_is_believed_by_its_own_authority_its_names_and_its_time_alone() {
    let receiver = TestReceiver::start().await;
    let (authority, ca, _folder) = authority();
    let own = format!("tls: {{ca: \"{ca}\"}}");
    let good = authority.issue(&["127.0.0.1", "localhost"], GOOD);
    let stranger = Identity::self_signed(&["127.0.0.1"]);
    for (name, identity, endpoint, wanted, says) in [
        ("its own authority", &good, own.as_str(), DELIVERED, ""),
        ("the system's authorities", &good, "", TLS, "unable to get local issuer certificate"),
        ("expired", &authority.issue(&["127.0.0.1"], EXPIRED), &own, TLS, "certificate has expired"),
        ("another host's", &authority.issue(&["other.internal"], GOOD), &own, TLS, "IP address mismatch"),
        ("signed by itself", &stranger, &own, TLS, "self-signed certificate"),
    ] {
        let before = receiver.seen().len();
        let front = TlsFront::start(identity.acceptor(), receiver.receiver.address).await;
        let workflow = workflow(&front.url(), endpoint);
        let outcome = attempt(&target(&workflow), &workflow).await;
        let error = outcome.error.unwrap_or_default();
        assert_eq!(outcome.outcome, wanted, "{name}: {error}");
        assert!(error.contains(says), "{name}: {error}");
        let arrived = usize::from(wanted == DELIVERED);
        assert_eq!(receiver.seen().len() - before, arrived, "{name}: not a byte goes to a server that is not believed");
    }
    let front = TlsFront::start(good.acceptor(), receiver.receiver.address).await;
    let workflow = workflow(&front.url().replace("127.0.0.1", "localhost"), &own);
    assert_eq!(attempt(&target(&workflow), &workflow).await.outcome, DELIVERED, "by name");
}

#[tokio::test]
async fn an_own_authority_stands_in_place_of_the_systems() {
    let receiver = TestReceiver::start().await;
    let (system, system_ca, _folder) = authority();
    let (_, other_ca, _other_folder) = authority();
    let front = TlsFront::start(system.issue(&["127.0.0.1"], GOOD).acceptor(), receiver.receiver.address).await;
    for (name, endpoint, outcome) in
        [("the system's", String::new(), "delivered"), ("another", format!("tls: {{ca: \"{other_ca}\"}}"), "tls")]
    {
        let (topic, database) = (Topic::new(1).await, TestDatabase::new().await);
        let mut config = Config::new(&topic, &database, &receiver);
        (config.url, config.endpoint) = (front.url(), endpoint);
        let relay = Relay::start_in(&config, "", &[("SSL_CERT_FILE", &system_ca)]);
        topic.send_orders(0..1);
        eventually(&format!("{name}: {outcome}"), PATIENCE, async || {
            let label = format!("outcome=\"{outcome}\"");
            (relay.metric("oncebox_attempts_total", &label).await? >= 1.0).then_some(())
        })
        .await;
    }
    assert_eq!(receiver.seen().len(), 1);
}

#[tokio::test]
async fn tls_below_1_2_is_refused() {
    let receiver = TestReceiver::start().await;
    let (authority, ca, _folder) = authority();
    let mut acceptor = authority.issue(&["127.0.0.1"], GOOD).acceptor();
    acceptor.set_min_proto_version(Some(SslVersion::TLS1)).unwrap();
    acceptor.set_max_proto_version(Some(SslVersion::TLS1_1)).unwrap();
    acceptor.clear_options(openssl::ssl::SslOptions::NO_TLSV1 | openssl::ssl::SslOptions::NO_TLSV1_1);
    acceptor.set_cipher_list("ALL:@SECLEVEL=0").unwrap();
    let front = TlsFront::start(acceptor, receiver.receiver.address).await;
    // Whoever asks for it gets it: what fails below fails for its version.
    assert!(old_client_connects(front.address).await);
    let before = front.accepted.load(Ordering::Acquire);
    let workflow = workflow(&front.url(), &format!("tls: {{ca: \"{ca}\"}}"));
    assert_eq!(attempt(&target(&workflow), &workflow).await.outcome, TLS);
    assert_eq!((front.accepted.load(Ordering::Acquire), receiver.seen().len()), (before, 0));
}

async fn old_client_connects(address: SocketAddr) -> bool {
    let mut builder = SslConnector::builder(SslMethod::tls_client()).unwrap();
    builder.set_max_proto_version(Some(SslVersion::TLS1_1)).unwrap();
    builder.set_cipher_list("ALL:@SECLEVEL=0").unwrap();
    builder.set_verify(SslVerifyMode::NONE);
    let session = builder.build().configure().unwrap().verify_hostname(false).into_ssl("127.0.0.1").unwrap();
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let mut stream = tokio_openssl::SslStream::new(session, stream).unwrap();
    std::pin::Pin::new(&mut stream).connect().await.is_ok()
}

#[tokio::test]
async fn a_demanded_client_certificate_is_shown_and_without_it_nothing_is_in_doubt() {
    let receiver = TestReceiver::start().await;
    let (authority, ca, folder) = authority();
    let mine = authority.issue(&["oncebox"], GOOD).write(folder.path(), "mine");
    let expired = authority.issue(&["oncebox"], EXPIRED).write(folder.path(), "expired");
    let foreign = Identity::authority("another").issue(&["oncebox"], GOOD).write(folder.path(), "foreign");
    for version in [SslVersion::TLS1_2, SslVersion::TLS1_3] {
        let mut acceptor = authority.issue(&["127.0.0.1"], GOOD).acceptor();
        acceptor.set_min_proto_version(Some(version)).unwrap();
        acceptor.set_max_proto_version(Some(version)).unwrap();
        authority.demanded_by(&mut acceptor);
        let front = TlsFront::start(acceptor, receiver.receiver.address).await;
        for (name, client, wanted) in [
            ("shown", Some(&mine), DELIVERED),
            ("missing", None, TLS),
            ("expired", Some(&expired), TLS),
            ("of another authority", Some(&foreign), TLS),
        ] {
            let client =
                client.map(|(cert, key)| format!(", cert: \"{}\", key: \"{}\"", cert.display(), key.display()));
            let endpoint = format!("tls: {{ca: \"{ca}\"{}}}", client.unwrap_or_default());
            let workflow = workflow(&front.url(), &endpoint);
            let before = receiver.seen().len();
            let outcome = attempt(&target(&workflow), &workflow).await;
            assert_eq!(outcome.outcome, wanted, "{version:?}, {name}: {:?}", outcome.error);
            assert_eq!(receiver.seen().len() - before, usize::from(wanted == DELIVERED), "{version:?}, {name}");
        }
    }
}

#[tokio::test]
async fn a_certificate_that_is_replaced_on_disk_is_shown_without_a_restart() {
    let receiver = TestReceiver::start().await;
    let (authority, ca, folder) = authority();
    let mut acceptor = authority.issue(&["127.0.0.1"], GOOD).acceptor();
    authority.demanded_by(&mut acceptor);
    let front = TlsFront::start(acceptor, receiver.receiver.address).await;
    let (cert, key) = Identity::authority("another").issue(&["oncebox"], GOOD).write(folder.path(), "client");
    let endpoint = format!("tls: {{ca: \"{ca}\", cert: \"{}\", key: \"{}\"}}", cert.display(), key.display());
    let workflow = workflow(&front.url(), &endpoint);
    let target = target(&workflow);
    assert_eq!(attempt(&target, &workflow).await.outcome, TLS);
    // Half of the pair, as a slow writer leaves it: the pair before stays in use.
    let renewed = authority.issue(&["oncebox"], GOOD);
    std::fs::write(&cert, renewed.certificate.to_pem().unwrap()).unwrap();
    let halfway = Instant::now();
    while halfway.elapsed() < Duration::from_millis(1_500) {
        assert_eq!(attempt(&target, &workflow).await.outcome, TLS);
    }
    renewed.write(folder.path(), "client");
    eventually("the new pair is shown", PATIENCE, async || {
        (attempt(&target, &workflow).await.outcome == DELIVERED).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_handshake_that_hangs_ends_at_the_deadline_and_was_never_sent() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (_, ca, _folder) = authority();
    let url = format!("https://{}/", listener.local_addr().unwrap());
    let workflow = workflow(&url, &format!("tls: {{ca: \"{ca}\"}}"));
    let outcome = attempt(&target(&workflow), &workflow).await;
    assert_eq!(outcome.outcome, Outcome::NeverSent(Trouble::Timeout));
    assert!(outcome.took.as_secs_f64() < 6.0, "{:?}", outcome.took);
}

#[tokio::test]
async fn a_proxy_is_asked_for_the_checked_address_and_sees_nothing_of_the_request() {
    let receiver = TestReceiver::start().await;
    let (authority, ca, _folder) = authority();
    let front = TlsFront::start(authority.issue(&["localhost"], GOOD).acceptor(), receiver.receiver.address).await;
    let proxy = ProxyServer::start("127.0.0.2:0", 200).await;
    let url = format!("http://user:p%40ss@{}", proxy.address);
    let https = front.url().replace("127.0.0.1", "localhost");
    for (address, url_of_endpoint) in [(front.address, https), (receiver.receiver.address, receiver.url())] {
        let workflow = workflow(&url_of_endpoint, &format!("tls: {{ca: \"{ca}\"}}"));
        // A name may have an IPv6 address too, and all that it has must be permitted.
        let target = through(&workflow, &["127.0.0.0/8", "::1/128"], &url);
        let outcome = attempt(&target, &workflow).await;
        assert_eq!(outcome.outcome, DELIVERED, "{url_of_endpoint}: {:?}", outcome.error);
        let head = proxy.heads().into_iter().rfind(|head| head.contains(&address.to_string())).expect("asked");
        assert!(head.starts_with(&format!("CONNECT {address} HTTP/1.1\r\n")), "{head}");
        assert!(head.to_lowercase().contains(&format!("host: {address}\r\n")), "{head}");
        assert!(
            head.contains("Basic dXNlcjpwQHNz") && !head.contains("events") && !head.contains("idempotency"),
            "{head}"
        );
        let host = receiver.seen().last().and_then(|seen| seen.header("host").map(str::to_owned));
        let wanted = url_of_endpoint.split('/').nth(2).map(str::to_owned);
        assert_eq!(host, wanted, "the endpoint's own name stays in the request");
    }
}

#[tokio::test]
async fn a_proxy_that_refuses_or_is_forbidden_lets_nothing_out() {
    let receiver = TestReceiver::start().await;
    let workflow = workflow(&receiver.url(), "");
    for (name, status, allow, wanted, asked) in [
        ("credentials are missing", 407, vec!["127.0.0.0/8"], Trouble::Connect, 1),
        ("the proxy has no way", 502, vec!["127.0.0.0/8"], Trouble::Connect, 1),
        ("the proxy's address is forbidden", 200, vec!["127.0.0.1/32"], Trouble::Blocked, 0),
        ("the endpoint's address is forbidden", 200, vec!["127.0.0.2/32"], Trouble::Blocked, 0),
    ] {
        let proxy = ProxyServer::start("127.0.0.2:0", status).await;
        let target = through(&workflow, &allow, &format!("http://{}", proxy.address));
        let outcome = attempt(&target, &workflow).await;
        assert_eq!(outcome.outcome, Outcome::NeverSent(wanted), "{name}: {:?}", outcome.error);
        assert_eq!((proxy.heads().len(), receiver.seen().len()), (asked, 0), "{name}");
    }
}
