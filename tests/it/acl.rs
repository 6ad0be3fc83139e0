//! The rights that docs/platforms.md lists, tried: a broker with an authorizer, a user who comes with SCRAM over TLS as the page says, and
//! the ACLs of its KafkaUser as they stand there. With these all is delivered and shown; what lacks one of them says so.

use granit_parser::{Event, Parser};
use serde_json::{Map, Value};

use crate::support::broker::Broker;
use crate::support::files::both;
use crate::support::process::{Config, command};
use crate::support::rights::{self, Right};
use crate::support::{PATIENCE, Relay, TestDatabase, TestReceiver, eventually};

const PASSWORD: &str = "not-the-password-of-anybody";
/// What the page's configuration refers to.
const ENVIRONMENT: [(&str, &str); 1] = [("KAFKA_SASL_PASSWORD", PASSWORD)];

/// What of the page is tried.
struct Page {
    user: String,
    rights: Vec<Right>,
    /// Under `kafka.properties`.
    properties: Map<String, Value>,
}

impl Page {
    fn read() -> Self {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/platforms.md");
        let page = std::fs::read_to_string(path).expect("the page");
        let blocks = page.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
        let documents: Vec<Value> = blocks.flat_map(documents).collect();
        let user = documents.iter().find(|document| document["kind"] == "KafkaUser").expect("a KafkaUser");
        let rights = user["spec"]["authorization"]["acls"].as_array().expect("ACLs").iter().flat_map(|acl| {
            let field = |name: &str| text(&acl["resource"][name]);
            let (kind, name, pattern) = (field("type"), field("name"), field("patternType"));
            let operations: Vec<String> = acl["operations"].as_array().expect("operations").iter().map(text).collect();
            operations.into_iter().map(move |operation| Right {
                kind: kind.clone(),
                name: name.clone(),
                pattern: pattern.clone(),
                operation,
            })
        });
        let properties = documents.iter().find_map(|document| document["kafka"]["properties"].as_object());
        Self {
            user: text(&user["metadata"]["name"]),
            rights: rights.collect(),
            properties: properties.expect("properties of Kafka").clone(),
        }
    }

    /// The only right to do this with such a thing whose name ends so.
    fn right(&self, kind: &str, operation: &str, end: &str) -> &Right {
        let is_it = |right: &&Right| right.kind == kind && right.operation == operation && right.name.ends_with(end);
        let found: Vec<&Right> = self.rights.iter().filter(is_it).collect();
        assert_eq!(found.len(), 1, "{operation} on {kind} {end}: {:?}", self.rights);
        found[0]
    }

    /// As entries of a map in YAML, with the certificate that is there.
    fn settings(&self, broker: &Broker) -> String {
        let mut properties = self.properties.clone();
        let ca = properties.get_mut("ssl.ca.location").expect("the page names a certificate");
        *ca = Value::String(broker.ca.display().to_string());
        // What is permitted again is seen sooner.
        properties.insert("topic.metadata.refresh.interval.ms".to_owned(), "1000".into());
        let entries: Vec<String> = properties.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        entries.join(", ")
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("a text, not {value}")).to_owned()
}

/// The documents of a block of YAML, with every scalar as text.
fn documents(block: &str) -> Vec<Value> {
    let mut events = Parser::new_from_str(block).map(|next| next.expect("valid YAML").0);
    let mut found = Vec::new();
    while let Some(event) = events.next() {
        if let Event::DocumentStart(..) = event {
            found.extend(node(&mut events));
        }
    }
    found
}

/// The next node. Nothing where a list or a map ends.
fn node<'a>(events: &mut impl Iterator<Item = Event<'a>>) -> Option<Value> {
    match events.next()? {
        Event::Scalar(text, ..) => Some(Value::String(text.into_owned())),
        Event::SequenceStart(..) => {
            let mut items = Vec::new();
            while let Some(item) = node(events) {
                items.push(item);
            }
            Some(Value::Array(items))
        }
        Event::MappingStart(..) => {
            let mut entries = Map::new();
            while let Some(key) = node(events) {
                entries.insert(text(&key), node(events)?);
            }
            Some(Value::Object(entries))
        }
        Event::SequenceEnd | Event::MappingEnd => None,
        _ => node(events),
    }
}

/// Waits until the workflow is in this state, and answers what `status` says then.
async fn shown(relay: &Relay, state: &str) -> String {
    let labels = format!("state=\"{state}\"");
    eventually(&format!("it is {state}"), PATIENCE, async || {
        relay.metric("oncebox_workflow_state", &labels).await.filter(|value| *value == 1.0)
    })
    .await;
    both(&command().args(["status", "--url", &relay.url()]).output().expect("oncebox starts"))
}

/// Whether a verb ends well on the relay's configuration, and what it says.
fn ask(relay: &Relay, arguments: &[&str]) -> (bool, String) {
    let mut asked = command();
    asked.args(arguments).arg("--config").arg(relay.config_path()).envs(ENVIRONMENT);
    let output = asked.output().expect("oncebox starts");
    (output.status.success(), both(&output))
}

async fn delivered(receiver: &TestReceiver, wanted: usize) {
    let what = format!("{wanted} are delivered");
    eventually(&what, PATIENCE, async || (receiver.applied() == wanted).then_some(())).await;
}

#[tokio::test]
async fn the_rights_that_the_page_lists_are_enough_and_without_one_of_them_it_is_said_or_missing() {
    let page = Page::read();
    let Some(broker) = Broker::start(&page.user, PASSWORD).await else { return };
    let (join, describe_verify) = (page.right("group", "Read", ""), page.right("group", "Describe", ".verify"));
    let (read, describe_configs) = (page.right("topic", "Read", ""), page.right("topic", "DescribeConfigs", ""));
    let grant = |rights: &[Right]| rights::grant(broker.admin.inner(), &page.user, rights);
    let (prefix, workflow) = join.name.split_once('.').expect("a prefix and a workflow");
    let topic = broker.topic(&read.name).await;
    let (database, receiver) = (TestDatabase::new().await, TestReceiver::start().await);
    let mut config = Config::new(&topic, &database, &receiver);
    config.workflow = workflow.to_owned();
    config.group_prefix = Some(prefix.to_owned());
    config.brokers.clone_from(&broker.secured);
    config.kafka = page.settings(&broker);

    // All but three of the rights. A commit leaves an offset without a record, which `verify` has to ask Kafka about.
    let later = [join, describe_verify, describe_configs];
    let first: Vec<Right> = page.rights.iter().filter(|right| !later.contains(right)).cloned().collect();
    assert_eq!(first.len() + later.len(), page.rights.len());
    grant(&first);
    topic.transact(0..20, true);
    let mut relay = Relay::start_in(&config, "", &ENVIRONMENT);
    relay.ready().await;

    // The group: the process is ready, the workflow is not, and it needs nobody once it may.
    let forbidden = format!("Kafka forbids the group `{}`: it needs Read on it", join.name);
    let status = shown(&relay, "halted").await;
    assert!(status.contains(&format!("{workflow}: halted since")) && status.contains(&forbidden), "{status}");
    let (is_well, said) = ask(&relay, &["validate", "--online"]);
    assert!(!is_well && said.contains("FAILED") && said.contains(&forbidden), "{said}");
    assert_eq!(receiver.applied(), 0);
    grant(std::slice::from_ref(join));
    delivered(&receiver, 20).await;
    assert!(!shown(&relay, "running").await.contains(&forbidden));

    // The group that only `verify` names.
    topic.transact(20..30, true);
    delivered(&receiver, 30).await;
    let (is_well, said) = ask(&relay, &["verify", workflow]);
    assert!(!is_well && said.contains("Group authorization failed"), "{said}");

    // The topic, while it is read. It may be described all the while.
    rights::take_away(broker.admin.inner(), &page.user, read);
    eventually("the broker refuses", PATIENCE, async || {
        let (is_well, said) = ask(&relay, &["validate", "--online"]);
        (!is_well && said.contains("Topic authorization failed")).then_some(())
    })
    .await;
    topic.transact(30..40, true);
    let forbidden = "Kafka forbids a topic: it needs Read";
    let status = shown(&relay, "halted").await;
    assert!(status.contains(forbidden), "{status}");
    assert_eq!(receiver.applied(), 30);
    relay.ready().await;
    grant(std::slice::from_ref(read));
    delivered(&receiver, 40).await;
    assert!(!shown(&relay, "running").await.contains(forbidden));

    // How long the topic keeps records is not known, and neither is how long is left.
    let labels = format!("workflow=\"{workflow}\"");
    let is_looked_at = async || relay.metric("oncebox_kafka_lag_records", &labels).await;
    eventually("Kafka's log is looked at", PATIENCE, is_looked_at).await;
    assert_eq!(relay.metric("oncebox_kafka_retention_headroom_seconds", &labels).await, None);
    assert_eq!(relay.stop().await, Some(0));

    // All of the page's rights and no other: nothing is refused, and every figure is there.
    grant(&[describe_verify.clone(), describe_configs.clone()]);
    let relay = Relay::start_in(&config, "", &ENVIRONMENT);
    topic.transact(40..60, true);
    delivered(&receiver, 60).await;
    let headroom = async || relay.metric("oncebox_kafka_retention_headroom_seconds", &labels).await;
    eventually("it is known how long records are kept", PATIENCE, headroom).await;
    let (is_well, said) = ask(&relay, &["validate", "--online"]);
    assert!(is_well && said.contains(&format!("may be read as group {}\n", join.name)), "{said}");
    let (is_well, said) = ask(&relay, &["verify", workflow]);
    assert!(is_well && said.contains("every record has exactly one disposition"), "{said}");
    assert!(!relay.log().contains("authorization"), "{}", relay.log());
}
