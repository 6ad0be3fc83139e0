//! Canaries: secrets that are found nowhere but in the requests they belong to, whatever goes wrong around them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use oncebox::receiver::{Answer, Seen};

use crate::support::process::{Config, command};
use crate::support::servers::{ProxyServer, Reply, TokenServer};
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, Topic, eventually};

const PASSWORD: &str = "canary-password";
const TOKEN: &str = "canary-token";
const CLIENT_SECRET: &str = "canary-client-secret";
const ACCESS_TOKEN: &str = "canary-access-token";
const HEADER: &str = "canary-header";
const PROXY_PASSWORD: &str = "canary-proxy-password";
const SIGNING: &str = "whsec_Y2FuYXJ5LXNpZ25pbmctc2VjcmV0LWNhbmFyeQ==";

/// Every form in which a secret could show.
fn canaries() -> Vec<String> {
    let plain = [PASSWORD, TOKEN, CLIENT_SECRET, ACCESS_TOKEN, HEADER, PROXY_PASSWORD, &SIGNING[6..]];
    let encoded = [format!("anna:{PASSWORD}"), format!("anna:{CLIENT_SECRET}"), format!("user:{PROXY_PASSWORD}")];
    let texts = plain.into_iter().map(str::to_owned).chain(encoded.iter().map(|text| STANDARD.encode(text)));
    // Bytes of the database print as hex.
    let hex = |text: &String| text.bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
    texts.flat_map(|text| [hex(&text), text]).collect()
}

/// All rows of all tables, as text.
async fn rows(database: &TestDatabase) -> String {
    let tables = "select quote_ident(table_schema) || '.' || quote_ident(table_name) from information_schema.tables where table_schema = $1";
    let mut all = String::new();
    for table in database.query(tables, &[&database.schema]).await {
        let table: String = table.get(0);
        for row in database.query(&format!("select t::text from {table} t"), &[]).await {
            all.push_str(row.get(0));
            all.push('\n');
        }
    }
    all
}

/// Answers of all kinds, by the order's number.
fn moody(seen: &Seen) -> Answer {
    let body = String::from_utf8_lossy(&seen.body).into_owned();
    let order = |id: u32| body.contains(&format!("\"id\":{id},"));
    match seen.attempt {
        1 if order(0) => Answer::status(401),
        1 if order(1) => Answer::status(500),
        1 if order(2) => Answer::Close,
        1 if order(3) => Answer::Hang,
        _ if order(4) => Answer::status(422),
        _ => Answer::Process,
    }
}

#[tokio::test]
async fn no_secret_is_in_logs_errors_rows_or_metrics() {
    let proxy = ProxyServer::start("127.0.0.1:0", 200).await;
    let tokens = TokenServer::start("127.0.0.1:0", |asked| match asked.number {
        // It answers with what it was asked, as a bad server does.
        1..=3 => Reply::status(400, &format!(r#"{{"error":"{}","with":{:?}}}"#, asked.form, asked.authorization)),
        4 => Reply::status(200, &format!(r#"{{"access_token":["{ACCESS_TOKEN}"]}}"#)),
        _ => Reply::token(ACCESS_TOKEN, 3600),
    })
    .await;
    let oauth2 = format!(
        "{{oauth2: {{tokenUrl: \"http://{}/\", clientId: anna, clientSecret: \"${{CLIENT_SECRET}}\"}}}}",
        tokens.address
    );
    let proxy_url = format!("http://user:{PROXY_PASSWORD}@{}", proxy.address);
    let environment = [
        ("PASSWORD", PASSWORD),
        ("TOKEN", TOKEN),
        ("CLIENT_SECRET", CLIENT_SECRET),
        ("HEADER", HEADER),
        ("SIGNING", SIGNING),
        ("PROXY", proxy_url.as_str()),
        ("ONCEBOX_LOG", "trace"),
    ];
    for auth in ["{basic: {username: anna, password: \"${PASSWORD}\"}}", "{bearer: {token: \"${TOKEN}\"}}", &oauth2] {
        let (topic, database) = (Topic::new(2).await, TestDatabase::new().await);
        let receiver = TestReceiver::deciding(moody).await;
        let mut config = Config::new(&topic, &database, &receiver);
        config.endpoint = format!(
            "auth: {auth}\n      headers: {{X-Key: \"${{HEADER}}\"}}\n      signing: {{secrets: [\"${{SIGNING}}\"]}}"
        );
        config.egress = "[127.0.0.0/8], proxy: \"${PROXY}\"".to_owned();
        let relay = Relay::start_in(&config, "", &environment);
        topic.send_orders(0..8);
        eventually("all are settled", PATIENCE, async || {
            (database.count("select count(*) from oncebox.done").await == 8).then_some(())
        })
        .await;
        // They are where they belong.
        let seen = receiver.seen();
        assert!(seen.iter().all(|seen| seen.header("x-key") == Some(HEADER) && seen.header("authorization").is_some()));
        assert!(proxy.heads().iter().any(|head| head.contains(&STANDARD.encode(format!("user:{PROXY_PASSWORD}")))));

        let metrics = relay.get("/metrics").await.expect("metrics").1;
        let mut found =
            vec![("the log", relay.log()), ("the metrics", metrics), ("the database", rows(&database).await)];
        assert!(found[0].1.contains("TRACE") && found[2].1.contains("OrderChanged"), "the places are looked at");
        let letter = relay.ask("/v1/dead-letters").await["items"][0]["id"].as_str().expect("a dead letter").to_owned();
        for path in [
            "/v1/workflows".to_owned(),
            "/v1/events?workflow=orders".to_owned(),
            format!("/v1/events/{letter}?payload=true"),
            format!("/v1/dead-letters/{letter}?payload=true"),
            "/openapi.json".to_owned(),
            "/".to_owned(),
        ] {
            found.push(("the API", relay.get(&path).await.expect("an answer").1));
        }
        for arguments in [
            &["validate"][..],
            &["validate", "--online"],
            &["dead-letters", "list", "--json"],
            &["dead-letters", "show", &letter],
            &["events", "list", "--workflow", "orders"],
            &["status"],
            &["verify", "orders"],
        ] {
            let config = relay.config_path();
            let output =
                command().args(arguments).arg("--config").arg(config).envs(environment).output().expect("it starts");
            assert!(output.status.success(), "{arguments:?}");
            found.push(("a command", String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()));
        }
        for (place, text) in found {
            for canary in canaries() {
                let at = text.find(&canary).map(|at| text[at.saturating_sub(200)..at].to_owned());
                assert!(at.is_none(), "{auth}: `{canary}` is in {place} after: {}", at.unwrap_or_default());
            }
        }
    }
}
