//! The example of a team's repository passes its own checks: by its script, and by the jobs that it has for CI, which are run here but for
//! fetching the binary.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

use granit_parser::{Event, Parser};

const BINARY: &str = env!("CARGO_BIN_EXE_oncebox");

fn team() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/team"))
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), output.stderr.as_slice()].concat()).into_owned()
}

#[test]
fn its_script_says_that_all_is_well() {
    let output = Command::new("bash").arg(team().join("ci.sh")).arg(BINARY).output().expect("bash starts");
    assert!(output.status.success(), "{}", said(&output));
}

/// Keys and texts of a YAML file, in order.
fn scalars(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let events = Parser::new_from_str(&text).map(|next| match next {
        Ok((event, _)) => event,
        Err(error) => panic!("{}: not valid YAML: {}", file.display(), error.kind()),
    });
    let texts = events.filter_map(|event| match event {
        Event::Scalar(text, ..) => Some(text.into_owned()),
        _ => None,
    });
    texts.collect()
}

#[test]
fn its_jobs_for_ci_do_what_its_script_does() {
    for file in [".github/workflows/oncebox.yaml", ".gitlab-ci.yml"] {
        let scalars = scalars(&team().join(file));
        let is_name = |text: &str| text.contains('_') && text.chars().all(|c| c.is_ascii_uppercase() || c == '_');
        let pairs = scalars.windows(2).filter(|pair| is_name(&pair[0]) && !pair[1].starts_with("${{"));
        let variables: BTreeMap<&str, &str> = pairs.map(|pair| (pair[0].as_str(), pair[1].as_str())).collect();
        assert!(variables.contains_key("ERP_TOKEN"), "{file}: {variables:?}");
        let lines = scalars.iter().flat_map(|text| text.lines());
        let commands: Vec<&str> =
            lines.filter(|line| line.starts_with("oncebox ") || line.starts_with("grep ")).collect();
        let verbs = commands.iter().filter_map(|line| line.strip_prefix("oncebox ")?.split(' ').next());
        assert_eq!(verbs.collect::<Vec<_>>(), ["validate", "test", "preview"], "{file}");

        let folder = tempfile::tempdir().expect("a folder");
        let copied = Command::new("cp").arg("-r").arg(team().join(".")).arg(folder.path()).status();
        assert!(copied.expect("cp runs").success());
        let binaries = Path::new(BINARY).parent().expect("its folder").display();
        let output = Command::new("bash")
            .args(["-euo", "pipefail", "-c", &commands.join("\n")])
            .current_dir(folder.path())
            .envs(variables)
            .env("PATH", format!("{binaries}:{}", std::env::var("PATH").expect("a PATH")))
            .output()
            .expect("bash starts");
        assert!(output.status.success(), "{file}: {}", said(&output));
    }
}
