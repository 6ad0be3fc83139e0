//! The Dockerfile and compose.yaml, without Docker: what hadolint says, whether what they name is there, whether `oncebox` takes the
//! configuration and the commands of compose.yaml, and whether it starts in the image's files. dev/image.sh does the looking and fetches
//! what it needs; what cannot be had counts as skipped. Nothing here builds or runs an image.

use std::path::Path;
use std::process::Command;

/// Answers false where what it needs cannot be had.
fn look(arguments: &[&str]) -> bool {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(root.join("dev/image.sh")).args(arguments).output().expect("the script runs");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    match output.status.code() {
        Some(0) => true,
        Some(3) => {
            skip(said.lines().last().unwrap_or_default());
            false
        }
        _ => panic!("dev/image.sh {arguments:?}:\n{said}"),
    }
}

fn skip(why: &str) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/target/skipped.log");
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
    let _ =
        file.and_then(|mut file| std::io::Write::write_all(&mut file, format!("skipped: image: {why}\n").as_bytes()));
}

#[test]
fn the_image_and_compose_are_of_what_is_there_and_oncebox_runs_with_it() {
    const BINARY: &str = env!("CARGO_BIN_EXE_oncebox");
    let looks: [&[&str]; 6] =
        [&["context"], &["lint"], &["compose"], &["notices"], &["relay", BINARY], &["tree", BINARY]];
    // What one cannot have the next cannot have either: that is one test skipped.
    let _ = looks.into_iter().all(look);
}
