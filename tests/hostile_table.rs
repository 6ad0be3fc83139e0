//! The catalogue of bad input, C1 to C20 of FAULTS section 1.5: a row for each, with what comes in and where it is
//! shown what becomes of it. A test that a row names must exist, so that the table cannot rot; what nobody shows says
//! why. No services needed.

use std::path::Path;
use std::sync::Arc;

use oncebox::config::{self, Loaded};
use oncebox::event::Record;
use oncebox::transform::{Disposition, Origin, Rejection, Transformer};

use Shown::{By, Here, Not};

/// Where it is shown what becomes of an input.
enum Shown {
    /// By this check.
    Here(fn()),
    /// By a test elsewhere: its file and its name.
    By(&'static str, &'static str),
    /// Nowhere, and why.
    Not(&'static str),
}

const CONFIG: &str = "tests/it/config.rs";
const CONTRACT: &str = "tests/it/contract.rs";
const HOSTILE: &str = "tests/hostile.rs";
const INGEST: &str = "tests/it/ingest.rs";
const RELAY: &str = "tests/it/relay.rs";
const RELOAD: &str = "tests/it/reload.rs";
const TRANSFORM: &str = "tests/transform.rs";

/// The number, the input, and where it is shown.
const CATALOGUE: [(&str, &str, &[Shown]); 20] = [
    (
        "C1",
        "YAML of aliases, of depth, of 100 MB, with a key twice, with a key that nobody knows",
        &[
            By(CONFIG, "hostile_yaml_is_refused_within_bounds"),
            By(CONFIG, "each_kind_of_mistake_is_named_with_its_position_and_what_is_allowed"),
            By(HOSTILE, "hostile_configurations_are_refused_with_a_reason"),
            By(HOSTILE, "any_text_is_a_configuration_or_a_list_of_problems"),
            By(HOSTILE, "any_damage_to_a_configuration_is_survived"),
            Not("a file is read whole, however long it is, and nobody measures the memory that it takes"),
        ],
    ),
    (
        "C2",
        "a million brackets in a record, in what a program makes of it, in a program",
        &[
            By(HOSTILE, "hostile_records_are_refused_and_nothing_breaks"),
            By(TRANSFORM, "hostile_json_rejects_the_record_and_nothing_else"),
            By(INGEST, "a_record_that_kills_the_process_becomes_a_dead_letter_and_its_neighbours_are_delivered"),
            Here(deep_outputs_are_refused),
            Not("jaq parses, writes and drops by recursion: the levels that a program has, or makes, have no bound"),
        ],
    ),
    (
        "C3",
        "one workflow id twice: in one file, in two, in another case",
        &[By(HOSTILE, "hostile_configurations_are_refused_with_a_reason"), Here(one_id_in_two_files_is_refused)],
    ),
    (
        "C4",
        "a workflow under another id",
        &[
            By("tests/it/rename.rs", "a_renamed_workflow_goes_on_where_it_was_with_its_keys_and_its_events"),
            By(RELOAD, "a_rename_under_load_loses_nothing_and_repeats_nothing"),
        ],
    ),
    (
        "C5",
        "a reload without a workflow that has undelivered events",
        &[
            By(RELOAD, "what_is_left_of_a_removed_workflow_is_drained_with_its_last_configuration"),
            By(RELOAD, "what_is_left_of_a_removed_workflow_can_be_parked"),
        ],
    ),
    (
        "C6",
        "a reload that changes transform or endpoint while events wait",
        &[
            By(CONTRACT, "what_was_made_before_a_reload_keeps_its_bytes_and_its_key"),
            By(RELOAD, "reloads_under_load_lose_nothing_and_repeat_nothing"),
        ],
    ),
    (
        "C7",
        "a reload that is invalid",
        &[By(RELOAD, "an_invalid_configuration_is_refused_whole_and_the_old_one_stays")],
    ),
    (
        "C8",
        "two processes with different configurations",
        &[
            By("tests/it/fleet.rs", "processes_with_different_orders_and_delays_lose_nothing_and_repeat_nothing"),
            By("tests/it/rename.rs", "a_renamed_workflow_goes_on_where_it_was_with_its_keys_and_its_events"),
            Not("an old process may send what a new one stored, to its own endpoint: only the bytes are the event's"),
        ],
    ),
    (
        "C9",
        "CR, LF, NUL and other characters on their way into a header; headers that frame a request",
        &[
            By(HOSTILE, "no_text_leaves_its_header"),
            By(HOSTILE, "hostile_configurations_are_refused_with_a_reason"),
            By(INGEST, "a_header_name_of_any_bytes_harms_nobody"),
        ],
    ),
    (
        "C10",
        "data in a URL: only a lookup takes any, the key",
        &[
            By("src/send/lookup.rs", "a_key_cannot_leave_its_place_in_the_url"),
            By(HOSTILE, "any_endpoint_that_loads_makes_a_request"),
        ],
    ),
    (
        "C11",
        "secrets, wherever they could show",
        &[
            By("tests/it/secrets.rs", "no_secret_is_in_logs_errors_rows_or_metrics"),
            By("tests/signatures.rs", "credentials_print_as_stars"),
            By(CONFIG, "what_a_reference_resolves_to_is_never_printed"),
            By("tests/it/logs.rs", "not_even_the_finest_log_has_a_body"),
            Not("a core dump has what the process has in memory"),
        ],
    ),
    (
        "C12",
        "the admin listener without a token, or with a wrong one",
        &[
            Here(a_listener_without_tokens_is_on_loopback),
            By("tests/it/api.rs", "without_a_known_token_nothing_can_be_read_or_changed"),
            By("tests/it/dashboard.rs", "random_requests_by_its_own_description_find_no_fault"),
        ],
    ),
    (
        "C13",
        "one dead letter replayed twice, one after the other and at once",
        &[
            By(RELAY, "a_dead_letter_is_listed_shown_and_replayed_once_with_its_key"),
            By(CONTRACT, "operators_who_replay_one_dead_letter_at_once_make_one_event"),
            By("tests/it/seams.rs", "a_kill_while_replaying_neither_loses_nor_doubles_the_event"),
        ],
    ),
    (
        "C14",
        "a replay under the same key, or under a new one",
        &[
            By(RELAY, "a_dead_letter_is_listed_shown_and_replayed_once_with_its_key"),
            By("tests/it/api.rs", "a_replay_with_a_new_key_is_a_new_event_to_its_receiver"),
        ],
    ),
    ("C15", "one record in two workflows with one endpoint", &[Here(two_workflows_make_two_keys)]),
    (
        "C16",
        "one topic name on two clusters",
        &[
            Here(two_clusters_make_two_keys),
            By("src/event/place.rs", "a_cursor_depends_on_every_part_of_its_name"),
            Not("a Debezium key is made of the source's own names and position: which cluster carried it is not in it"),
        ],
    ),
    (
        "C17",
        "a dead letter that cannot be written",
        &[
            By("tests/it/postgres.rs", "a_dead_letter_that_cannot_be_written_is_neither_lost_nor_passed_over"),
            By("tests/it/seams.rs", "a_kill_while_parking_neither_loses_nor_doubles_the_dead_letter"),
        ],
    ),
    (
        "C18",
        "a pipe of logs that nobody reads, metrics that nobody takes",
        &[
            By("tests/it/logs.rs", "a_collector_that_is_away_holds_up_nothing"),
            Not("a full pipe of logs: a thread of its own writes them, which no test has seen hold up nothing"),
        ],
    ),
    (
        "C19",
        "a record of several events, and a crash in the middle",
        &[
            By(TRANSFORM, "each_output_is_one_event_with_a_key_of_its_own"),
            By("tests/it/at_most_once.rs", "a_record_with_more_events_than_may_start_together_sends_each_once"),
            By("tests/it/seams.rs", "a_kill_before_the_commit_loses_and_doubles_nothing"),
        ],
    ),
    (
        "C20",
        "programs whose result can differ between two runs",
        &[
            By(TRANSFORM, "functions_that_differ_between_runs_or_reach_outside_are_refused"),
            By(TRANSFORM, "the_same_record_always_gives_the_same_bytes"),
            By(HOSTILE, "any_record_has_a_disposition"),
        ],
    ),
];

#[test]
fn every_number_has_its_row_and_every_row_a_test_or_a_reason() {
    for (index, (number, input, shown)) in CATALOGUE.iter().enumerate() {
        assert_eq!(*number, format!("C{}", index + 1));
        assert!(!input.is_empty() && !shown.is_empty(), "{number}");
        let has_reason = shown.iter().all(|shown| !matches!(shown, Not(reason) if reason.is_empty()));
        assert!(has_reason, "{number} is not shown, and does not say why");
    }
}

#[test]
fn every_test_that_a_row_names_is_there() {
    for (number, _, shown) in CATALOGUE {
        for one in shown {
            let By(file, name) = one else { continue };
            let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file));
            let text = text.unwrap_or_else(|error| panic!("{number} names {file}: {error}"));
            let at = text.find(&format!("fn {name}(")).unwrap_or_else(|| panic!("{number}: no {name} in {file}"));
            let before = text[..at].trim_end().trim_end_matches("async").trim_end();
            let attribute = before.rsplit("#[").next().unwrap_or_default();
            assert!(before.ends_with(']') && attribute.contains("test"), "{number}: {name} in {file} is no test");
        }
    }
}

#[test]
fn what_the_rows_check_themselves_holds() {
    for (_, _, shown) in CATALOGUE {
        for one in shown {
            if let Here(check) = one {
                check();
            }
        }
    }
}

/// What these files of one folder make, and what is wrong with them.
fn read(files: &[(&str, &str)]) -> (Option<Loaded>, String) {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).expect("written");
    }
    let (loaded, problems) = config::read(folder.path());
    (loaded, problems.to_string())
}

fn workflow(id: &str) -> String {
    format!("workflows:\n  - id: {id}\n    source: {{topics: [t]}}\n    endpoint: {{url: \"https://e.com/\"}}\n")
}

fn transformer(yaml: &str) -> Transformer {
    let (loaded, problems) = read(&[("a.yaml", &format!("postgres: {{url: \"postgresql://localhost/x\"}}\n{yaml}"))]);
    assert!(problems.is_empty(), "{problems}");
    let workflow = Arc::clone(&loaded.expect("a configuration").config.workflows[0]);
    Transformer::new(workflow).expect("programs compile")
}

/// What becomes of a record that was read from this cluster.
fn applied(transformer: &Transformer, cluster: &str) -> Disposition {
    let origin = Origin { cluster: cluster.into(), topic: "t".into(), topic_id: "i".into(), partition: 0 };
    transformer.apply(&Record { offset: 1, value: Some(b"{}".to_vec()), ..Record::default() }, &origin)
}

fn key(transformer: &Transformer, cluster: &str) -> String {
    match applied(transformer, cluster) {
        Disposition::Events { drafts, .. } => drafts[0].key.clone(),
        other => panic!("{other:?}"),
    }
}

fn deep_outputs_are_refused() {
    let deep = format!("{}    transform: 'reduce range(200) as $level (.; [.])'\n", workflow("a"));
    let disposition = applied(&transformer(&deep), "c");
    assert!(matches!(disposition, Disposition::Rejected(Rejection::OutputNotJson)), "{disposition:?}");
}

fn one_id_in_two_files_is_refused() {
    let (one, other) = (workflow("orders"), workflow("orders"));
    let (_, problems) = read(&[("a.yaml", &one), ("b.yaml", &other)]);
    assert!(problems.contains("`orders` is used twice") && problems.contains("b.yaml:2:9"), "{problems}");
}

fn a_listener_without_tokens_is_on_loopback() {
    let postgres = "postgres: {url: \"postgresql://localhost/x\"}\n";
    let (loaded, problems) = read(&[("a.yaml", postgres)]);
    assert!(loaded.expect(&problems).config.admin.listen.ip().is_loopback(), "unless it is told otherwise");
    for listen in ["0.0.0.0:9464", "[::]:9464", "192.0.2.1:9464"] {
        let (_, problems) = read(&[("a.yaml", &format!("{postgres}admin: {{listen: \"{listen}\"}}\n"))]);
        assert!(problems.contains("can be reached from outside"), "{listen}: {problems}");
    }
}

fn two_workflows_make_two_keys() {
    assert_ne!(key(&transformer(&workflow("a")), "c"), key(&transformer(&workflow("b")), "c"));
}

fn two_clusters_make_two_keys() {
    let transformer = transformer(&workflow("a"));
    assert_ne!(key(&transformer, "c"), key(&transformer, "d"));
    assert_eq!(key(&transformer, "c"), key(&transformer, "c"), "and one makes one");
}
