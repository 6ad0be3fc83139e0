//! A uniqueness policy, checked: the Open Job Spec's UniquePolicy, as a workflow or a caller over HTTP gives it.
//!
//! What must hold: a policy that would silently compare everything, or nothing, is refused.

use super::raw_delivery::RawUnique;
use super::raw_workflow::{UniqueConflict, UniqueDimension, UniqueState};

/// Which events are the same, how long, and what becomes of the later one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UniquePolicy {
    pub queue: bool,
    pub args: bool,
    pub meta: bool,
    /// Which of the data's own names count; nothing: all of the data.
    pub args_keys: Option<Vec<String>>,
    pub meta_keys: Vec<String>,
    /// An ISO 8601 duration; nothing: for as long as the earlier event is known.
    pub period: Option<String>,
    pub states: Vec<UniqueState>,
    pub on_conflict: UniqueConflict,
}

const STATES: [UniqueState; 5] =
    [UniqueState::Available, UniqueState::Active, UniqueState::Scheduled, UniqueState::Retryable, UniqueState::Pending];

/// What is wrong: the key it stands at, the trouble, and what is allowed.
pub type Complaint = (&'static str, String, &'static str);

impl UniquePolicy {
    pub fn check(raw: &RawUnique) -> Result<Self, Vec<Complaint>> {
        let mut wrong = Vec::new();
        let both = |first: bool, second: bool| first && second;
        for (twice, key) in [
            (both(raw.args_keys.is_some(), raw.args_keys_camel.is_some()), "args_keys"),
            (both(raw.meta_keys.is_some(), raw.meta_keys_camel.is_some()), "meta_keys"),
            (both(raw.on_conflict.is_some(), raw.on_conflict_camel.is_some()), "on_conflict"),
        ] {
            if twice {
                wrong.push((key, format!("`{key}` is there in two spellings"), "one of them"));
            }
        }
        let keys = raw.keys.clone().unwrap_or_default();
        let has = |dimension| keys.contains(&dimension);
        let args_keys = raw.args_keys.clone().or_else(|| raw.args_keys_camel.clone());
        let meta_keys = raw.meta_keys.clone().or_else(|| raw.meta_keys_camel.clone()).unwrap_or_default();
        for (list, key) in [(&args_keys.clone().unwrap_or_default(), "args_keys"), (&meta_keys, "meta_keys")] {
            if let Some(name) = repeated(list) {
                wrong.push((key, format!("`{name}` is there twice"), "each name once"));
            }
        }
        if repeated(&keys).is_some() {
            wrong.push(("keys", "a dimension is there twice".to_owned(), "each once: type, queue, args, meta"));
        }
        if has(UniqueDimension::Meta) && meta_keys.is_empty() {
            wrong.push((
                "meta_keys",
                "`meta` without `meta_keys` would make every event unique".to_owned(),
                "the names that count",
            ));
        }
        if has(UniqueDimension::Args) && args_keys.as_ref().is_some_and(Vec::is_empty) {
            wrong.push((
                "args_keys",
                "an empty list would make all events the same".to_owned(),
                "at least one name, or no args_keys",
            ));
        }
        if !has(UniqueDimension::Args) && args_keys.as_ref().is_some_and(|names| !names.is_empty()) {
            wrong.push(("args_keys", "`args_keys` without `args` in `keys` says nothing".to_owned(), "keys with args"));
        }
        let states = raw.states.clone().unwrap_or_else(|| STATES.to_vec());
        if states.is_empty() {
            wrong.push(("states", "with no states nothing is ever a duplicate".to_owned(), "at least one state"));
        }
        if repeated(&states).is_some() {
            wrong.push(("states", "a state is there twice".to_owned(), "each state once"));
        }
        if let Some(period) = raw.period.as_deref() {
            if !is_duration(period) {
                wrong.push(("period", format!("`{period}` is not a duration"), "ISO 8601, such as PT1H, P1D or P1M"));
            } else if is_beyond_all_calendars(period) {
                wrong.push((
                    "period",
                    format!("`{period}` is longer than calendars go"),
                    "up to 9999 years, months, weeks or days",
                ));
            }
        }
        if !wrong.is_empty() {
            return Err(wrong);
        }
        Ok(Self {
            queue: has(UniqueDimension::Queue),
            args: has(UniqueDimension::Args),
            meta: has(UniqueDimension::Meta),
            args_keys: args_keys.filter(|_| has(UniqueDimension::Args)),
            meta_keys,
            period: raw.period.clone(),
            states,
            on_conflict: raw.on_conflict.or(raw.on_conflict_camel).unwrap_or(UniqueConflict::Reject),
        })
    }
}

fn repeated<T: PartialEq>(list: &[T]) -> Option<&T> {
    list.iter().enumerate().find(|(at, one)| list[..*at].contains(one)).map(|(_, one)| one)
}

/// A duration by the grammar of RFC 3339, appendix A: whole numbers, units in order and none left out between two, weeks alone.
pub fn is_duration(text: &str) -> bool {
    let Some(rest) = text.strip_prefix('P') else { return false };
    let (date, time) = match rest.split_once('T') {
        Some((date, time)) => (date, Some(time)),
        None => (rest, None),
    };
    if time.is_none() && units(date).as_deref() == Some("W") {
        return true;
    }
    let fits = |part: &str, order: &str| units(part).is_some_and(|units| !units.is_empty() && order.contains(&units));
    let date_fits = (date.is_empty() && time.is_some()) || fits(date, "YMD");
    date_fits && time.is_none_or(|time| fits(time, "HMS"))
}

/// The units of a row of numbers, each with its unit.
fn units(text: &str) -> Option<String> {
    let mut units = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let unit = rest[digits..].chars().next().filter(|unit| digits > 0 && unit.is_ascii_uppercase())?;
        units.push(unit);
        rest = &rest[digits + 1..];
    }
    Some(units)
}

/// Nor does Postgres add it to a time.
fn is_beyond_all_calendars(duration: &str) -> bool {
    let (date, time) = duration.split_once('T').unwrap_or((duration, ""));
    let longest = |text: &str| {
        let numbers = text.split(|c: char| !c.is_ascii_digit());
        numbers.map(|digits| digits.trim_start_matches('0').len()).max().unwrap_or(0)
    };
    longest(date) > 4 || longest(time) > 9
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(policy: &str) -> Result<UniquePolicy, String> {
        let raw: RawUnique = serde_json::from_str(policy).map_err(|error| error.to_string())?;
        UniquePolicy::check(&raw).map_err(|wrong| format!("{wrong:?}"))
    }

    #[test]
    fn an_empty_policy_is_the_default_one() {
        let policy = check("{}").unwrap();
        assert_eq!((policy.queue, policy.args, policy.meta), (false, false, false));
        assert_eq!((policy.states, policy.on_conflict), (STATES.to_vec(), UniqueConflict::Reject));
        let nulls = r#"{"keys": null, "args_keys": null, "meta_keys": null, "period": null, "states": null, "on_conflict": null}"#;
        assert_eq!(check(nulls), check("{}"));
        assert_eq!(
            check(r#"{"argsKeys": ["a"], "keys": ["args"]}"#),
            check(r#"{"args_keys": ["a"], "keys": ["args"]}"#)
        );
    }

    #[test]
    fn a_policy_that_means_nothing_is_refused() {
        for policy in [
            r#"{"keys": ["argz"]}"#,
            r#"{"keys": ["Type"]}"#,
            r#"{"keys": ["type", "type"]}"#,
            r#"{"keys": ["meta"]}"#,
            r#"{"keys": ["meta"], "meta_keys": []}"#,
            r#"{"keys": ["args"], "args_keys": []}"#,
            r#"{"keys": ["args"], "args_keys": ["a", "a"]}"#,
            r#"{"args_keys": ["a"]}"#,
            r#"{"states": []}"#,
            r#"{"states": ["running"]}"#,
            r#"{"states": ["active", "active"]}"#,
            r#"{"on_conflict": "drop"}"#,
            r#"{"on_conflict": "reject", "onConflict": "reject"}"#,
            r#"{"key": ["type"]}"#,
            r#"{"period": "1h"}"#,
            r#"{"period": "P99999Y"}"#,
            r#"{"period": "P10000D"}"#,
            r#"{"period": "PT9999999999S"}"#,
        ] {
            assert!(check(policy).is_err(), "{policy}");
        }
    }

    #[test]
    fn durations_are_those_of_rfc_3339() {
        for good in ["PT0S", "P1M", "PT36H", "P2W", "P1Y2M3DT4H5M6S", "P1M2D", "PT1M2S", "P01D"] {
            assert!(is_duration(good), "{good}");
        }
        for bad in [
            "", "P", "PT", "P1YT", "P1Y2D", "PT1H2S", "P1Y2W", "P1WT1H", "-P1D", "P-1D", "PT0.5S", "P1D ", "P1D\n",
            "P২Y", "1h", "P1", "PT1D",
        ] {
            assert!(!is_duration(bad), "{bad}");
        }
    }
}
