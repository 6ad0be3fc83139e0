//! Enters: the JSON of a Debezium change, with or without its schema/payload wrapper. Leaves: the change unwrapped, and
//! what identifies it: database, schema, table, the connector's own position, the operation.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::Rejection;
use super::decode::minified;

/// What a change says about itself.
#[derive(Debug)]
pub struct Change<'a> {
    /// The envelope: `{"before", "after", "source", "op", ..}`.
    pub envelope: &'a str,
    pub database: Option<String>,
    pub schema: Option<String>,
    pub table: Option<String>,
    /// Milliseconds since 1970, when the source has a time.
    pub ts_ms: Option<i64>,
    pub op: Option<String>,
    /// Name and value of each field of the connector's position; empty when one is missing.
    pub position: Vec<(&'static str, String)>,
}

/// Exactly these two fields: a row may well have a column of either name.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wrapper<'a> {
    #[serde(borrow)]
    payload: &'a RawValue,
    #[serde(borrow, rename = "schema")]
    _schema: &'a RawValue,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    source: Option<Source<'a>>,
    op: Option<String>,
    #[serde(borrow)]
    transaction: Option<Source<'a>>,
}

/// Connectors differ in their fields, so the source is a map of raw values.
#[derive(Deserialize)]
#[serde(transparent)]
struct Source<'a> {
    #[serde(borrow)]
    fields: HashMap<String, &'a RawValue>,
}

/// The fields that make a position, by connector. A second list is for those that may be absent.
fn position_fields(connector: &str) -> Option<(&'static [&'static str], &'static [&'static str])> {
    match connector {
        "postgresql" => Some((&["lsn"], &["txId"])),
        "mysql" | "mariadb" => Some((&["file", "pos", "row"], &[])),
        "sqlserver" => Some((&["change_lsn", "event_serial_no"], &["commit_lsn"])),
        "oracle" => Some((&["scn"], &["commit_scn", "rs_id", "ssn", "redo_thread"])),
        "mongodb" => Some((&["ts_ms", "ord"], &["h", "tord", "txnNumber"])),
        "db2" => Some((&["change_lsn"], &["commit_lsn"])),
        _ => None,
    }
}

impl<'a> Change<'a> {
    pub fn read(json: &'a str) -> Result<Self, Rejection> {
        let envelope = unwrapped(json);
        let parsed: Envelope<'a> = serde_json::from_str(envelope)
            .map_err(|_| Rejection::NotAChange { missing: "its fields have other types" })?;
        let Some(source) = parsed.source else {
            return Err(Rejection::NotAChange { missing: "it has no `source`" });
        };
        let connector = source.text("connector");
        let fields = connector.as_deref().and_then(position_fields);
        let mut position = fields.map_or_else(Vec::new, |fields| source.position(fields));
        if connector.as_deref() == Some("mongodb") {
            position = within_transaction(position, parsed.transaction.as_ref());
        }
        Ok(Self {
            envelope,
            position,
            database: source.text("db"),
            schema: source.text("schema"),
            table: source.text("table").or_else(|| source.text("collection")),
            ts_ms: source.fields.get("ts_ms").and_then(|raw| raw.get().parse().ok()),
            op: parsed.op,
        })
    }
}

impl Source<'_> {
    /// A field that is a JSON string; anything else is as good as missing.
    fn text(&self, name: &str) -> Option<String> {
        serde_json::from_str(self.fields.get(name)?.get()).ok()
    }

    /// A field's name and its JSON, unless it is null.
    fn value(&self, name: &'static str) -> Option<(&'static str, String)> {
        let text = self.fields.get(name).map(|raw| minified(raw.get())).filter(|text| text != "null");
        text.map(|text| (name, text))
    }

    fn position(&self, (needed, optional): (&[&'static str], &[&'static str])) -> Vec<(&'static str, String)> {
        let found: Option<Vec<_>> = needed.iter().map(|name| self.value(name)).collect();
        let Some(mut found) = found else { return Vec::new() };
        found.extend(optional.iter().filter_map(|name| self.value(name)));
        found
    }
}

/// All changes of one MongoDB transaction stand at one point of its log. Only their order within it tells two changes of one
/// document apart; without it the position identifies nothing.
fn within_transaction(
    mut position: Vec<(&'static str, String)>,
    transaction: Option<&Source<'_>>,
) -> Vec<(&'static str, String)> {
    let has = |name: &str| position.iter().any(|(field, _)| *field == name);
    if !has("txnNumber") || has("tord") {
        return position;
    }
    match transaction.and_then(|transaction| transaction.value("total_order")) {
        Some(order) => position.push(order),
        None => position.clear(),
    }
    position
}

/// The payload of a `{"schema": .., "payload": ..}` wrapper, or the value itself.
pub fn unwrapped(json: &str) -> &str {
    serde_json::from_str::<Wrapper<'_>>(json).map_or(json, |wrapper| wrapper.payload.get())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BARE: &str = r#"{"before":null,"after":{"id":7},"source":{"connector":"postgresql","db":"sales","schema":"public",
        "table":"orders","lsn":24023128,"txId":555,"ts_ms":1700000000123},"op":"c","ts_ms":1700000000456}"#;

    #[test]
    fn a_change_reads_the_same_with_and_without_its_wrapper() {
        let wrapped = format!(r#"{{"schema":{{"type":"struct"}},"payload":{BARE}}}"#);
        let (bare, wrapped) = (Change::read(BARE).unwrap(), Change::read(&wrapped).unwrap());
        assert_eq!(bare.envelope, wrapped.envelope);
        assert_eq!(bare.position, vec![("lsn", "24023128".to_owned()), ("txId", "555".to_owned())]);
        assert_eq!(bare.position, wrapped.position);
        assert_eq!((bare.database.as_deref(), bare.table.as_deref()), (Some("sales"), Some("orders")));
        assert_eq!(bare.ts_ms, Some(1_700_000_000_123), "the source's time, not the connector's");
    }

    #[test]
    fn a_missing_position_is_empty_and_a_missing_source_is_rejected() {
        let change = Change::read(r#"{"source":{"connector":"postgresql","db":"d","table":"t","lsn":null},"op":"r"}"#);
        assert!(change.unwrap().position.is_empty());
        assert!(matches!(Change::read(r#"{"op":"c"}"#), Err(Rejection::NotAChange { .. })));
        assert!(matches!(Change::read("[1]"), Err(Rejection::NotAChange { .. })));
    }

    #[test]
    fn two_changes_of_one_mongodb_transaction_never_share_a_position() {
        let position = |source: &str, transaction: &str| {
            let change = format!(
                r#"{{"source":{{"connector":"mongodb","db":"d","collection":"c","ts_ms":1,"ord":2{source}}},"op":"u"{transaction}}}"#
            );
            Change::read(&change).unwrap().position.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert_eq!(position("", ""), ["ts_ms", "ord"]);
        assert_eq!(position(r#","txnNumber":7"#, ""), [""; 0], "nothing tells it from the others of its transaction");
        assert_eq!(position(r#","txnNumber":7"#, r#","transaction":null"#), [""; 0]);
        assert_eq!(position(r#","tord":1,"txnNumber":7"#, ""), ["ts_ms", "ord", "tord", "txnNumber"]);
        let ordered = position(r#","txnNumber":7"#, r#","transaction":{"id":"x","total_order":3}"#);
        assert_eq!(ordered, ["ts_ms", "ord", "txnNumber", "total_order"]);
    }

    #[test]
    fn only_a_whole_wrapper_is_taken_off() {
        assert_eq!(unwrapped(r#"{"schema":null,"payload":{"id":1}}"#), r#"{"id":1}"#);
        for row in [r#"{"id":1,"payload":"x"}"#, r#"{"payload":"x"}"#, r#"{"schema":1,"payload":2,"id":3}"#, "[1]"] {
            assert_eq!(unwrapped(row), row, "a column, not a wrapper");
        }
    }
}
