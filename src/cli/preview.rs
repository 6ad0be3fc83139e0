//! `oncebox preview WORKFLOW --event FILE`: one record, step by step, to the exact request; `--send` sends it once.

use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use serde::Serialize;

use super::{Failure, block_on, load, workflow};
use crate::config::{Config, Loaded, Workflow};
use crate::event::Event;
use crate::observe::chain;
use crate::preview::{Ending, Identity, Masks, Sample, Shown, Walk, walk};
use crate::send::connect::Target;
use crate::send::egress::Rules;
use crate::send::outcome::{self, Outcome};
use crate::send::request::Template;
use crate::send::verdict::{self, Policy, Tries, Verdict};
use crate::send::{self, Attempt};

#[derive(Debug, clap::Args)]
pub struct Preview {
    /// Its id.
    workflow: String,
    /// The record: {"value", "key", "headers", "topic", "partition", "offset", "timestamp"}, all but value optional;
    /// - reads standard input.
    #[arg(long, value_name = "FILE")]
    event: PathBuf,
    /// Send each request once, for real; exit 1 when one is not delivered.
    #[arg(long)]
    send: bool,
    /// The cluster's id, for keys made of coordinates; kafka.cluster when not given.
    #[arg(long)]
    cluster: Option<String>,
    /// The topic's id, as Kafka's tools write it.
    #[arg(long)]
    topic_id: Option<String>,
    /// As JSON.
    #[arg(long)]
    json: bool,
    /// A YAML file, or a directory of *.yaml files.
    #[arg(long, short, value_name = "PATH")]
    config: PathBuf,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Printed {
    disposition: Ending,
    events: Vec<PrintedEvent>,
}

#[derive(Serialize)]
struct PrintedEvent {
    #[serde(flatten)]
    request: Shown,
    /// Only with `--send`.
    #[serde(skip_serializing_if = "Option::is_none")]
    sent: Option<Sent>,
}

#[derive(Serialize)]
struct Sent {
    outcome: &'static str,
    delivered: bool,
    status: Option<u16>,
    error: Option<String>,
    answer: String,
    millis: u128,
}

pub fn run(preview: &Preview) -> Result<(), Failure> {
    let loaded = load(&preview.config)?;
    let flow = workflow(&loaded, &preview.workflow)?;
    if preview.send {
        refuse_unable(&loaded.config, flow)?;
    }
    let text = read(preview)?;
    let cluster = preview.cluster.clone().or_else(|| loaded.config.kafka.cluster.clone());
    let identity = Identity { cluster, topic_id: preview.topic_id.clone() };
    let sample = Sample::parse(&text, flow, &identity)
        .map_err(|error| Failure::Usage(format!("{}: {}", name(preview), chain(&error))))?;
    let walk = Walk::take(flow, &sample).map_err(Failure::Usage)?;
    let events = walk.events(flow, &sample);
    let template = Template::new(flow);
    let masks = Masks::of(&loaded, flow);
    let shown: Vec<Shown> =
        events.iter().map(|event| Shown::new(&template.request(event, 1, FENCE), event, flow, &masks)).collect();
    let mut notes = notes(&sample, &walk, &identity);
    if preview.send && !walk.of_place && !walk.drafts.is_empty() {
        notes.push(
            "a receiver that honours keys takes the real event, when it comes, for a copy of this one".to_owned(),
        );
    }
    if !preview.json {
        print_steps(&loaded, flow, &walk, &shown);
        notes.iter().for_each(|note| println!("\nnote: {note}"));
    }
    let sent = match preview.send {
        true => send_all(&loaded, flow, &template, &events)?.into_iter().map(Some).collect(),
        false => Vec::from_iter(shown.iter().map(|_| None)),
    };
    let undelivered = sent.iter().flatten().filter(|sent| !sent.delivered).count();
    let made: Vec<PrintedEvent> =
        shown.into_iter().zip(sent).map(|(request, sent)| PrintedEvent { request, sent }).collect();
    if preview.json {
        notes.iter().for_each(|note| eprintln!("note: {note}"));
        if let Some((_, reason)) = walk.steps.last().filter(|_| walk.ending != Ending::Delivered) {
            eprintln!("{}: {}", walk.ending.as_str(), reason.replace('\n', ": "));
        }
        println!("{}", serde_json::to_string_pretty(&Printed { disposition: walk.ending, events: made })?);
    } else {
        print_sent(&made);
    }
    if undelivered > 0 || (preview.send && walk.ending == Ending::Invalid) {
        return Err(Failure::Said);
    }
    Ok(())
}

/// Below that of any relay: a receiver that keeps the highest takes no preview for a live sender.
const FENCE: i64 = 0;

fn name(preview: &Preview) -> String {
    if preview.event.as_os_str() == "-" { "standard input".to_owned() } else { preview.event.display().to_string() }
}

fn read(preview: &Preview) -> Result<String, Failure> {
    let mut text = String::new();
    let read = if preview.event.as_os_str() == "-" {
        std::io::stdin().read_to_string(&mut text).map(drop)
    } else {
        std::fs::read_to_string(&preview.event).map(|read| text = read)
    };
    read.map_err(|error| Failure::Usage(format!("{}: cannot be read: {error}", name(preview))))?;
    Ok(text)
}

/// A request that this build cannot make as configured is not made at all.
fn refuse_unable(config: &Config, flow: &Workflow) -> Result<(), Failure> {
    let shapes_requests = |pointer: &str| {
        ["/endpoint/", "/source/"].iter().any(|part| pointer.contains(part)) && !pointer.ends_with("/lookup")
    };
    let unable: Vec<String> = config
        .unsupported
        .iter()
        .filter(|problem| problem.pointer.starts_with("/egress"))
        .chain(flow.unsupported.iter().filter(|problem| shapes_requests(&problem.pointer)))
        .map(ToString::to_string)
        .collect();
    if unable.is_empty() {
        return Ok(());
    }
    Err(Failure::Usage(format!("refused, because this build cannot do it:\n{}", unable.join("\n"))))
}

fn notes(sample: &Sample, walk: &Walk, identity: &Identity) -> Vec<String> {
    let mut notes = Vec::new();
    if !sample.topic_is_read {
        notes.push(format!("the workflow does not read the topic `{}`", sample.origin.topic));
    }
    let missing: Vec<&str> = [(&identity.cluster, "--cluster"), (&identity.topic_id, "--topic-id")]
        .into_iter()
        .filter(|(given, _)| given.is_none())
        .map(|(_, flag)| flag)
        .collect();
    if !walk.drafts.is_empty() && !missing.is_empty() {
        let what = if walk.of_place {
            "the key, which is made of coordinates, and `oncebox-event`"
        } else {
            "`oncebox-event`"
        };
        notes.push(format!("{what} will differ from the real ones: they need {}", missing.join(" and ")));
    }
    notes
}

fn print_steps(loaded: &Loaded, flow: &Workflow, walk: &Walk, shown: &[Shown]) {
    for (name, text) in &walk.steps {
        // Programs as they were written: what a reference filled in may be a secret.
        let text = ["filter", "transform", "eventType"].iter().fold(text.clone(), |text, key| {
            loaded.tree.nearest(&format!("/workflows/{}/{key}", flow.index)).as_written(text)
        });
        println!("{name:<10} {}", text.replace('\n', "\n           "));
    }
    for (index, (draft, request)) in walk.drafts.iter().zip(shown).enumerate() {
        println!("\nevent {index}    {}", request.idempotency_key);
        println!("envelope   {}", walk::envelope(flow, draft));
        println!("\n{}\n", request.curl());
        println!("{}", serde_json::to_string_pretty(request).unwrap_or_default());
    }
    if walk.ending != Ending::Delivered {
        println!("\n{}: no request is made", walk.ending.as_str());
    }
}

fn print_sent(made: &[PrintedEvent]) {
    for PrintedEvent { request, sent } in made {
        let Some(sent) = sent else { continue };
        let status = sent.status.map(|status| status.to_string()).or_else(|| sent.error.clone()).unwrap_or_default();
        let verdict = if sent.delivered { "delivered" } else { "not delivered" };
        println!(
            "\nsent       {}: {verdict}, {status}, {} ms ({})",
            request.idempotency_key, sent.millis, sent.outcome
        );
        if !sent.answer.is_empty() {
            println!("answer     {}", sent.answer);
        }
    }
}

/// Each once, one after the other, never again.
fn send_all(
    loaded: &Loaded,
    flow: &Arc<Workflow>,
    template: &Template,
    events: &[Event],
) -> Result<Vec<Sent>, Failure> {
    let egress = &loaded.config.egress;
    let rules = Rules::new(egress.allow.clone()).through(egress.proxy.clone());
    let target = Target::new(flow, &rules).context("setting up the endpoint's credentials")?;
    block_on(async {
        let mut sent = Vec::new();
        for event in events {
            let began = Instant::now();
            let deadline = began + flow.endpoint.timeout;
            let attempt = send::attempt(&target, None, template.request(event, 1, FENCE), began, deadline).await;
            sent.push(judged(flow, attempt));
        }
        Ok(sent)
    })
}

fn judged(flow: &Workflow, attempt: Attempt) -> Sent {
    let answers = &flow.endpoint.answers;
    let tries = Tries { sends: 1, counted: 1, age: attempt.took };
    let policy = Policy { answers, retries: &flow.delivery.retries, in_doubt: flow.delivery.in_doubt };
    let verdict = verdict::judge(&attempt.outcome, tries, policy, 0.5).verdict;
    let status = match attempt.outcome {
        Outcome::Answered { status, .. } => Some(status),
        Outcome::Unknown(_) | Outcome::NeverSent(_) => None,
    };
    Sent {
        outcome: outcome::label(&attempt.outcome, answers),
        delivered: verdict == Verdict::Delivered,
        status,
        error: attempt.error,
        answer: String::from_utf8_lossy(&attempt.answer).into_owned(),
        millis: attempt.took.as_millis(),
    }
}
