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
        let position = source
            .text("connector")
            .and_then(|connector| position_fields(&connector))
            .map_or_else(Vec::new, |fields| source.position(fields));
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

    fn position(&self, (needed, optional): (&[&'static str], &[&'static str])) -> Vec<(&'static str, String)> {
        let value = |name: &'static str| {
            let text = self.fields.get(name).map(|raw| minified(raw.get())).filter(|text| text != "null");
            text.map(|text| (name, text))
        };
        let found: Option<Vec<_>> = needed.iter().map(|name| value(name)).collect();
        let Some(mut found) = found else { return Vec::new() };
        found.extend(optional.iter().filter_map(|name| value(name)));
        found
    }
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
    fn only_a_whole_wrapper_is_taken_off() {
        assert_eq!(unwrapped(r#"{"schema":null,"payload":{"id":1}}"#), r#"{"id":1}"#);
        for row in [r#"{"id":1,"payload":"x"}"#, r#"{"payload":"x"}"#, r#"{"schema":1,"payload":2,"id":3}"#, "[1]"] {
            assert_eq!(unwrapped(row), row, "a column, not a wrapper");
        }
    }
}
