//! Sends spans to a collector: OTLP over HTTP, as JSON. Enters: spans that are over. Leaves: a request a second, at most.
//!
//! A collector that is away loses its spans, never a delivery: what could not be sent is dropped.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tracing::{debug, warn};

use crate::config::Certificates;
use crate::observe::chain;
use crate::observe::trace::{Span, Tracer};
use crate::send::connect::{Connection, Means, Route};
use crate::send::egress::Rules;
use crate::send::{request, tls};

const EVERY: Duration = Duration::from_secs(1);
const AT_ONCE: usize = 1_000;
const PATIENCE: Duration = Duration::from_secs(10);

/// Sends until the last tracer is gone.
pub async fn export_forever(collector: url::Url, tracer: Tracer, mut spans: mpsc::Receiver<Span>) {
    let collector = traces_at(collector);
    let mut connection = None;
    let mut waiting = Vec::with_capacity(AT_ONCE);
    while spans.recv_many(&mut waiting, AT_ONCE).await > 0 {
        let sent = tokio::time::timeout(PATIENCE, send(&collector, &mut connection, &waiting)).await;
        match sent {
            Ok(Ok(status)) if (200..300).contains(&status) => {}
            Ok(Ok(status)) => warn!(status, spans = waiting.len(), "the trace collector refused spans"),
            Ok(Err(error)) => {
                connection = None;
                debug!(error = %chain(error.as_ref()), spans = waiting.len(), "the trace collector is not reached; spans are dropped");
            }
            Err(_) => {
                connection = None;
                debug!(spans = waiting.len(), "the trace collector does not answer; spans are dropped");
            }
        }
        let dropped = tracer.take_dropped();
        if dropped > 0 {
            warn!(dropped, "more spans than the trace collector takes: the others were dropped");
        }
        if waiting.len() < AT_ONCE {
            tokio::time::sleep(EVERY).await;
        }
        waiting.clear();
    }
}

/// Where a collector takes traces, unless the configuration names a path of its own.
fn traces_at(mut collector: url::Url) -> url::Url {
    if collector.path() == "/" {
        collector.set_path("/v1/traces");
    }
    collector
}

async fn send(collector: &url::Url, kept: &mut Option<Connection>, spans: &[Span]) -> anyhow::Result<u16> {
    let mut connection = match kept.take().filter(|connection| !connection.sender.is_closed()) {
        Some(connection) => connection,
        None => connect(collector).await?,
    };
    let question = Request::post(collector.path())
        .header("host", request::host(collector))
        .header("user-agent", request::user_agent())
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(encoded(spans).to_string())))?;
    let sender = &mut connection.sender;
    let answered = async {
        sender.ready().await?;
        let answer = sender.send_request(question).await?;
        let status = answer.status().as_u16();
        answer.into_body().collect().await?;
        Ok::<_, hyper::Error>(status)
    };
    let status = connection.driver.during(answered).await?;
    *kept = Some(connection);
    Ok(status)
}

/// The platform's own collector is no endpoint of a client's: egress rules are not for it.
async fn connect(collector: &url::Url) -> anyhow::Result<Connection> {
    let everywhere = ["0.0.0.0/0", "::/0"].map(|net| net.parse().expect("a network"));
    let route = Route::new(collector, &Rules::new(everywhere.to_vec()));
    let tls = match collector.scheme() {
        "https" => Some(tls::connector(&Certificates::default())?),
        _ => None,
    };
    Ok(route.connect(&Means { generation: 0, tls, proxy: None }).await?)
}

fn encoded(spans: &[Span]) -> Value {
    let text = |key: &str, value: &str| json!({"key": key, "value": {"stringValue": value}});
    let spans: Vec<Value> = spans
        .iter()
        .map(|span| {
            let mut one = json!({
                "traceId": span.trace,
                "spanId": span.id,
                "name": span.name,
                // Internal, or client.
                "kind": if span.is_client { 3 } else { 1 },
                "startTimeUnixNano": span.from.to_string(),
                "endTimeUnixNano": span.to.to_string(),
                "attributes": span.attributes.iter().map(|(key, value)| text(key, value)).collect::<Vec<_>>(),
                "status": match &span.error {
                    Some(error) => json!({"code": 2, "message": error}),
                    None => json!({"code": 1}),
                },
            });
            if let Some(parent) = &span.parent {
                one["parentSpanId"] = json!(parent);
            }
            one
        })
        .collect();
    let resource = [text("service.name", "oncebox"), text("service.version", env!("CARGO_PKG_VERSION"))];
    json!({"resourceSpans": [{
        "resource": {"attributes": resource},
        "scopeSpans": [{"scope": {"name": "oncebox", "version": env!("CARGO_PKG_VERSION")}, "spans": spans}],
    }]})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_its_own_is_kept() {
        let at = |text: &str| traces_at(text.parse().unwrap()).to_string();
        assert_eq!(at("http://collector:4318"), "http://collector:4318/v1/traces");
        assert_eq!(at("https://o.example/otlp/v1/traces"), "https://o.example/otlp/v1/traces");
    }
}
