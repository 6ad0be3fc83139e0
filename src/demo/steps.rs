//! What to try by hand when the demo was asked to keep running.

use super::Demo;

/// Has the receiver process again what it is sent.
fn mend(port: &str) -> String {
    format!("curl -sS -X POST http://127.0.0.1:{port}/_behaviour -d '{{}}'")
}

pub fn print(demo: &Demo) {
    let (program, config, folder) = (demo.program.display(), demo.config(), demo.folder.display());
    let config = config.display();
    let (brokers, topic, port) = (&demo.brokers, &demo.topic, demo.receiver_port);
    let admin = demo.admin_port;
    let relay = demo.relay.as_ref().map_or(0, super::Running::pid);
    let receiver = demo.receiver.pid();
    let mend = mend(&port.to_string());
    println!(
        "
Everything is still running. The dashboard: http://127.0.0.1:{admin}/

Copy and paste:

1. produce an order (the first line tells your shell where Kafka and Postgres are)
   source {folder}/env
   echo '{{\"id\": 999001, \"amount\": 12.50}}' | {program} produce --brokers {brokers} --topic {topic}
2. see its request
   tail -n 1 {folder}/receiver.jsonl
3. break the receiver, and produce another
   curl -sS -X POST http://127.0.0.1:{port}/_behaviour -d '{{\"fail\": 1, \"status\": 503}}'
   echo '{{\"id\": 999002, \"amount\": 99.00}}' | {program} produce --brokers {brokers} --topic {topic}
4. watch it being tried again (on the dashboard too), then let the receiver refuse it for good: it becomes a dead letter
   tail -n 3 {folder}/receiver.jsonl
   curl -sS -X POST http://127.0.0.1:{port}/_behaviour -d '{{\"fail\": 1, \"status\": 422}}'
   {program} dead-letters list --config {config}
5. mend the receiver and replay the dead letter, with the id that the list shows
   {mend}
   {program} dead-letters replay --config {config} ID

Stop it all with: kill {relay} {receiver}"
    );
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_walk_in_the_documents_has_the_command_that_the_demo_prints() {
        // Read and not included: an image is built without the documents.
        let page =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/operate.md")).expect("it is there");
        let mend = super::mend("PORT");
        assert!(page.contains(&mend), "{mend}");
    }
}
