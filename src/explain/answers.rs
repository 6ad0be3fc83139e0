//! What each answer means: every status there is, judged, and those with one meaning put together.

use std::time::Duration;

use super::facts::Facts;
use super::fate::{self, Fate};
use crate::config::shown::shown_duration;
use crate::send::outcome::{Outcome, Trouble};
use crate::send::verdict::Suspension;

#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// Statuses, or what happened instead of one.
    pub answer: String,
    pub means: String,
    #[serde(skip)]
    pub decided_by: &'static str,
}

/// Statuses that fare alike.
struct Group {
    fate: Fate,
    /// What a Retry-After of an hour makes of it.
    asked: Fate,
    statuses: Vec<u16>,
}

pub fn of(facts: &Facts<'_>) -> Vec<Answer> {
    let mut groups: Vec<Group> = Vec::new();
    for status in 100..600 {
        let judged = |retry_after| fate::of(&Outcome::Answered { status, retry_after }, facts);
        let (fate, asked) = (judged(None), judged(Some(Duration::from_secs(3600))));
        match groups.iter_mut().find(|group| group.fate == fate && group.asked == asked) {
            Some(group) => group.statuses.push(status),
            None => groups.push(Group { fate, asked, statuses: vec![status] }),
        }
    }
    groups.sort_by_key(|group| rank(&group.fate));
    // What most statuses mean is what one that nobody listed means.
    let rest = groups.iter().map(|group| group.statuses.len()).max().unwrap_or_default();
    let mut rows: Vec<Answer> = Vec::new();
    let mut others = None;
    for group in &groups {
        let mut means = group.fate.in_words(facts);
        if group.asked != group.fate {
            let longest = &facts.workflow.delivery.retries.max_retry_after;
            let longest = shown_duration(*longest);
            means = format!("{means}; with Retry-After not before that, at most {longest}, never before the schedule");
        }
        let decided_by = group.fate.decided_by(facts);
        if group.statuses.len() == rest && others.is_none() {
            let answer = "any other status; redirects are not followed".to_owned();
            others = Some(Answer { answer, means, decided_by });
        } else {
            rows.push(Answer { answer: ranges(&group.statuses), means, decided_by });
        }
    }
    rows.extend(others);
    rows.extend(troubles(facts));
    rows
}

fn troubles(facts: &Facts<'_>) -> Vec<Answer> {
    [
        ("no answer within the timeout, or the connection breaks", Outcome::Unknown(Trouble::Timeout)),
        ("refused connection, DNS or TLS failure", Outcome::NeverSent(Trouble::Connect)),
        ("an address that egress forbids", Outcome::NeverSent(Trouble::Blocked)),
    ]
    .into_iter()
    .map(|(answer, outcome)| {
        let fate = fate::of(&outcome, facts);
        let (means, decided_by) = (fate.in_words(facts), fate.decided_by(facts));
        Answer { answer: answer.to_owned(), means, decided_by }
    })
    .collect()
}

fn rank(fate: &Fate) -> u8 {
    match fate {
        Fate::Delivered => 0,
        Fate::Retried { .. } => 1,
        Fate::Dead(_) => 2,
        Fate::Suspended(Suspension::Gone | Suspension::Blocked) | Fate::DeadAndSuspended => 3,
        Fate::Redelivered { .. } | Fate::Asked | Fate::Held => 4,
    }
}

/// `2xx, 409, 501-503`.
fn ranges(statuses: &[u16]) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut rest = statuses;
    while let Some(first) = rest.first() {
        let run = rest.iter().zip(*first..).take_while(|(status, expected)| **status == *expected).count();
        let last = first + u16::try_from(run).unwrap_or(1) - 1;
        // A whole class is written as one, also in the middle of a run.
        if first % 100 == 0 && run >= 100 {
            parts.push(format!("{}xx", first / 100));
            rest = &rest[100..];
            continue;
        }
        let end = last.min(first / 100 * 100 + 99);
        parts.push(if end == *first { first.to_string() } else { format!("{first}-{end}") });
        rest = &rest[usize::from(end - first) + 1..];
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::sample::EXACTLY_ONCE;
    use crate::explain::facts::with_facts;

    fn means(more: &str, answer: &str) -> String {
        with_facts(more, |facts| {
            let rows = of(facts);
            let found = rows.iter().find(|row| row.answer.split(", ").any(|part| part == answer));
            found.unwrap_or_else(|| panic!("no {answer} in {rows:?}")).means.clone()
        })
    }

    #[test]
    fn statuses_are_written_as_classes_and_ranges() {
        assert_eq!(ranges(&[200, 201, 203]), "200-201, 203");
        assert_eq!(ranges(&(200..300).collect::<Vec<_>>()), "2xx");
        assert_eq!(ranges(&(150..302).collect::<Vec<_>>()), "150-199, 2xx, 300-301");
    }

    #[test]
    fn answers_mean_what_the_verdict_says() {
        assert_eq!(means(EXACTLY_ONCE, "2xx"), "delivered");
        assert!(means(EXACTLY_ONCE, "409").starts_with("this key is being processed"));
        assert!(means(EXACTLY_ONCE, "422").starts_with("dead letter `rejected`"));
        assert!(means(EXACTLY_ONCE, "410").starts_with("the workflow suspends itself"));
        assert!(means(EXACTLY_ONCE, "500").starts_with("in doubt"));
        assert!(means(EXACTLY_ONCE, "503").contains("with Retry-After not before that, at most 1h"));
    }

    #[test]
    fn a_list_of_the_workflows_own_changes_the_table() {
        let more = format!("{EXACTLY_ONCE}    endpoint: {{answers: {{delivered: [2xx, 404], rejected: [401]}}}}\n");
        assert_eq!(means(&more, "404"), "delivered");
        assert!(means(&more, "401").starts_with("dead letter `rejected`"));
    }

    #[test]
    fn with_at_most_once_every_other_answer_is_final() {
        let more = "    delivery: {guarantee: at-most-once}\n";
        assert_eq!(means(more, "2xx"), "delivered");
        with_facts(more, |facts| {
            for row in of(facts).iter().filter(|row| row.answer.starts_with("any other status")) {
                assert!(row.means.starts_with("dead letter `rejected`"), "{row:?}");
            }
        });
        assert!(means(more, "410").contains("suspends itself"), "gone also suspends");
    }
}
