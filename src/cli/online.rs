//! `oncebox validate --online`: what a configuration needs of the world. Each thing is asked for once, and said with what came of it.

use std::net::SocketAddr;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::{Offset, TopicPartitionList};

use super::{Failure, block_on};
use crate::config::{Config, Topics, Workflow};
use crate::ingest::{native, settings};
use crate::observe::chain;
use crate::outbox::Database;
use crate::process::rules;
use crate::send::connect;
use crate::{observe, preflight};

const ASK: Duration = Duration::from_secs(5);
/// A broker that forbids reading says so within this; one that has nothing new says nothing.
const READ: Duration = Duration::from_secs(2);

/// What was asked about, and what came of it.
type Finding = (String, Result<String, String>);

pub fn check(config: &Config) -> Result<(), Failure> {
    let findings = block_on(async {
        let mut findings = vec![postgres(config).await];
        let asked = config.clone();
        let kafka = tokio::task::spawn_blocking(move || kafka(&asked));
        findings.extend(kafka.await?);
        for workflow in &config.workflows {
            findings.extend(endpoint(workflow, config).await);
        }
        Ok::<_, anyhow::Error>(findings)
    })?;
    let mut failed = 0;
    for (what, found) in &findings {
        match found {
            Ok(how) => println!("ok      {what}: {how}"),
            Err(why) => {
                failed += 1;
                println!("FAILED  {what}: {why}");
            }
        }
    }
    match failed {
        0 => Ok(()),
        failed => {
            println!("{failed} of {} failed", findings.len());
            Err(Failure::Said)
        }
    }
}

async fn postgres(config: &Config) -> Finding {
    let checked = async {
        let database = Database::new(&config.postgres)?;
        preflight::check_database(&database).await
    };
    let found = checked.await.map(|()| format!("schema `{}` fits", config.postgres.schema));
    ("postgres".to_owned(), found.map_err(|error| observe::chain(error.as_ref())))
}

fn kafka(config: &Config) -> Vec<Finding> {
    let what = format!("kafka {}", config.kafka.brokers);
    let client: BaseConsumer = match settings::client(&config.kafka).create() {
        Ok(client) => client,
        Err(error) => return vec![(what, Err(chain(&error)))],
    };
    let Some(cluster) = client.client().fetch_cluster_id(ASK).filter(|id| !id.is_empty()) else {
        return vec![(what, Err("no broker answers".to_owned()))];
    };
    let mut findings = vec![(what, Ok(format!("cluster {cluster}")))];
    for workflow in &config.workflows {
        findings.extend(source(config, &client, workflow));
    }
    findings
}

fn source(config: &Config, client: &BaseConsumer, workflow: &Workflow) -> Vec<Finding> {
    let topics: Vec<String> = match &workflow.source.topics {
        Topics::Named(names) => names.clone(),
        Topics::Matching(pattern) => {
            let what = format!("{}: topics {pattern}", workflow.id);
            let names = match (client.fetch_metadata(None, ASK), regex::Regex::new(pattern)) {
                (Ok(all), Ok(regex)) => {
                    all.topics().iter().map(|t| t.name().to_owned()).filter(|name| regex.is_match(name)).collect()
                }
                (Err(error), _) => return vec![(what, Err(chain(&error)))],
                (_, Err(error)) => return vec![(what, Err(chain(&error)))],
            };
            let names: Vec<String> = names;
            if names.is_empty() {
                return vec![(what, Err("no topic has such a name yet".to_owned()))];
            }
            names
        }
    };
    let described = native::describe_topics(client.client(), &topics, ASK);
    let one = |topic: &String| {
        let what = format!("{}: topic {topic}", workflow.id);
        let found = match &described {
            Err(error) => Err(chain(error)),
            Ok(described) => match described.get(topic) {
                None => Err("there is no such topic, or it may not be described".to_owned()),
                Some(found) => may_read(config, workflow, topic).map(|how| {
                    let (partitions, group) = (found.partitions.len(), group(config, workflow));
                    format!("{partitions} partitions, may be read as group {group}{how}")
                }),
            },
        };
        (what, found)
    };
    topics.iter().map(one).collect()
}

fn group(config: &Config, workflow: &Workflow) -> String {
    format!("{}.{}", config.kafka.group_prefix, workflow.id)
}

/// Whether the group may be joined, its offsets be asked for, and the topic read: without joining it, so that nothing is disturbed.
/// Answers what could not be told.
fn may_read(config: &Config, workflow: &Workflow, topic: &str) -> Result<&'static str, String> {
    let group = group(config, workflow);
    let read = || {
        let mut settings = settings::client(&config.kafka);
        settings.set("group.id", &group).set("enable.auto.commit", "false");
        let consumer: BaseConsumer = settings.create()?;
        // First: for the offsets of a group that it may not have, librdkafka waits for a coordinator until the time is up.
        let may_join = native::may_join(consumer.client(), &group, ASK);
        if let Ok(Some(false)) = may_join {
            return Ok(may_join);
        }
        let mut first = TopicPartitionList::new();
        first.add_partition(topic, 0);
        let committed = consumer.committed_offsets(first, ASK)?;
        if let Some(element) = committed.find_partition(topic, 0) {
            element.error()?;
        }
        let mut end = TopicPartitionList::new();
        end.add_partition_offset(topic, 0, Offset::End)?;
        consumer.assign(&end)?;
        match consumer.poll(READ) {
            Some(Err(error)) => Err(error),
            Some(Ok(_)) | None => Ok(may_join),
        }
    };
    match read().map_err(|error: rdkafka::error::KafkaError| chain(&error))? {
        Ok(Some(true)) => Ok(""),
        Ok(Some(false)) => Err(format!("Kafka forbids the group `{group}`: it needs Read on it")),
        Ok(None) | Err(_) => Ok(" (whether that may be joined the brokers do not tell)"),
    }
}

/// Names and egress rules of all that a workflow connects to; nothing is sent.
async fn endpoint(workflow: &Workflow, config: &Config) -> Vec<Finding> {
    let endpoint = &workflow.endpoint;
    let mut urls = vec![("endpoint", endpoint.url.clone())];
    if let crate::config::Auth::Oauth2(oauth) = &endpoint.auth {
        urls.push(("token", oauth.token_url.clone()));
    }
    let lookup =
        endpoint.lookup.as_ref().and_then(|lookup| lookup.url.replace(crate::config::KEY_IN_URL, "key").parse().ok());
    urls.extend(lookup.map(|url| ("lookup", url)));
    let mut findings = Vec::new();
    for (name, url) in urls {
        let found = connect::permitted(&url, &rules(config)).await;
        let host = url.host_str().unwrap_or_default();
        let shown = found.map(|addresses: Vec<SocketAddr>| {
            let list: Vec<String> = addresses.iter().map(|address| address.ip().to_string()).collect();
            format!("{} permitted", list.join(", "))
        });
        findings.push((format!("{}: {name} {host}", workflow.id), shown.map_err(|error| chain(&error))));
    }
    findings
}
