//! What the documents say can be followed: links lead somewhere, files that are named are there, configurations are accepted, commands
//! and their flags exist, the reference is the one that the schema makes, and the code of the receivers' kits is what their tests run. So
//! is what a release brings along: completions and manual pages for every verb.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Output, Stdio};

use openssl::asn1::Asn1Time;
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::PKey;
use openssl::x509::X509;

const BINARY: &str = env!("CARGO_BIN_EXE_oncebox");

/// Good wherever a page refers to a secret, as one that signs too.
const SECRET: &str = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// Folders whose files a page may name.
const OURS: [&str; 9] = ["clients", "dev", "docs", "examples", "helm", "proof", "sql", "src", "tests"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A page, taken apart.
struct Page {
    /// From the root of the repository.
    path: PathBuf,
    /// Lines outside of blocks of code, with their numbers.
    prose: Vec<(usize, String)>,
    blocks: Vec<Block>,
}

struct Block {
    language: String,
    line: usize,
    text: String,
}

impl Page {
    fn read(path: PathBuf) -> Self {
        let text = fs::read_to_string(root().join(&path)).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let (mut prose, mut blocks) = (Vec::new(), Vec::new());
        let mut open: Option<Block> = None;
        for (index, content) in text.lines().enumerate() {
            let line = index + 1;
            match (content.trim_start().strip_prefix("```"), open.take()) {
                (Some(_), Some(block)) => blocks.push(block),
                (Some(language), None) => {
                    open = Some(Block { language: language.trim().to_owned(), line, text: String::new() });
                }
                (None, Some(mut block)) => {
                    block.text.push_str(content);
                    block.text.push('\n');
                    open = Some(block);
                }
                (None, None) => prose.push((line, content.to_owned())),
            }
        }
        assert!(open.is_none(), "{}: a block of code does not end", path.display());
        Self { path, prose, blocks }
    }

    /// What its links lead to, with their lines.
    fn links(&self) -> Vec<(usize, &str)> {
        let mut found = Vec::new();
        for (line, text) in &self.prose {
            let mut rest = text.as_str();
            while let Some((_, after)) = rest.split_once("](") {
                let Some((target, later)) = after.split_once(')') else { break };
                found.push((*line, target));
                rest = later;
            }
        }
        found
    }

    /// The names under which its headings can be linked to.
    fn anchors(&self) -> BTreeSet<String> {
        let (mut seen, mut anchors) = (BTreeMap::<String, usize>::new(), BTreeSet::new());
        for (_, text) in &self.prose {
            let title = text.trim_start_matches('#');
            if !(1..=6).contains(&(text.len() - title.len())) || !title.starts_with(' ') {
                continue;
            }
            let name = anchor(title.trim());
            let times = seen.entry(name.clone()).or_default();
            anchors.insert(if *times == 0 { name } else { format!("{name}-{times}") });
            *times += 1;
        }
        anchors
    }
}

/// As GitHub makes it of a heading.
fn anchor(heading: &str) -> String {
    let kept = |c: char| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        _ => c.is_alphanumeric().then_some(c),
    };
    heading.to_lowercase().chars().filter_map(kept).collect()
}

/// The README, all pages of docs, the chart's, the example's and those of the receivers' kits.
fn pages() -> Vec<Page> {
    let mut paths = vec![PathBuf::from("README.md")];
    for folder in ["docs", "helm", "clients", "examples"] {
        collect(Path::new(folder), &mut paths);
    }
    assert!(paths.len() > 10, "{paths:?}");
    paths.into_iter().map(Page::read).collect()
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(root().join(folder)).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries {
        let entry = entry.expect("an entry");
        let path = folder.join(entry.file_name());
        // What the example receivers fetched is not ours.
        let is_fetched = ["node_modules", "venv", "dist"].iter().any(|name| path.ends_with(name));
        if entry.file_type().expect("a kind").is_dir() {
            if !is_fetched {
                collect(&path, paths);
            }
        } else if path.extension().is_some_and(|end| end == "md") {
            paths.push(path);
        }
    }
}

/// The file that a link of a page names.
fn beside(page: &Path, link: &str) -> PathBuf {
    let mut path = page.parent().unwrap_or(page).to_path_buf();
    for part in Path::new(link).components() {
        match part {
            Component::Normal(name) => path.push(name),
            Component::ParentDir => {
                path.pop();
            }
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    path
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), output.stderr.as_slice()].concat()).into_owned()
}

/// Says that this test could not run here: `make test` shows and counts these.
fn skip(test: &str, why: &str) {
    let path = root().join("target/skipped.log");
    let file = fs::OpenOptions::new().create(true).append(true).open(path);
    let _ = file.and_then(|mut file| file.write_all(format!("skipped: {test}: {why}\n").as_bytes()));
}

#[test]
fn every_link_leads_somewhere() {
    let (mut followed, mut broken) = (0, Vec::new());
    for page in pages() {
        for (line, link) in page.links() {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            followed += 1;
            let (file, name) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { page.path.clone() } else { beside(&page.path, file) };
            let is_there = root().join(&target).exists();
            let is_page = target.extension().is_some_and(|end| end == "md");
            let leads = is_there && (name.is_empty() || !is_page || Page::read(target).anchors().contains(name));
            if !leads {
                broken.push(format!("{}:{line}: {link}", page.path.display()));
            }
        }
    }
    assert!(followed > 100, "{followed} links");
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn every_page_of_docs_is_in_the_readmes_list() {
    let readme = Page::read(PathBuf::from("README.md"));
    let listed: BTreeSet<PathBuf> = readme.links().into_iter().map(|(_, link)| PathBuf::from(link)).collect();
    let is_top = |page: &Page| page.path.parent() == Some(Path::new("docs"));
    let forgotten: Vec<PathBuf> =
        pages().into_iter().filter(is_top).map(|page| page.path).filter(|path| !listed.contains(path)).collect();
    assert!(forgotten.is_empty(), "{forgotten:?}");
}

#[test]
fn every_file_that_a_page_names_is_there() {
    let mut missing = Vec::new();
    for page in pages() {
        for (line, text) in &page.prose {
            // Every second piece stands between backticks.
            for named in text.split('`').skip(1).step_by(2) {
                let is_ours = named.split_once('/').is_some_and(|(folder, _)| OURS.contains(&folder));
                let is_plain = !named.contains([' ', '*', '{', '#']);
                if is_ours && is_plain && !root().join(named).exists() {
                    missing.push(format!("{}:{line}: {named}", page.path.display()));
                }
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

/// Whether a YAML text has a key at its outermost level.
fn has_key(yaml: &str, key: &str) -> bool {
    yaml.lines().any(|line| line.strip_prefix(key).is_some_and(|rest| rest.starts_with(':')))
}

/// What a configuration may have at its outermost level.
fn keys() -> BTreeSet<String> {
    let output = Command::new(BINARY).arg("schema").output().expect("oncebox starts");
    let schema: serde_json::Value = serde_json::from_slice(&output.stdout).expect("the schema is JSON");
    schema["properties"].as_object().expect("its keys").keys().cloned().collect()
}

/// Whether a YAML text is a configuration or a part of one, and no values of the chart and no object of Kubernetes.
fn is_configuration(yaml: &str, keys: &BTreeSet<String>) -> bool {
    let outermost = yaml.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_alphabetic()));
    let found: Vec<&str> = outermost.map(|line| line.split(':').next().unwrap_or_default()).collect();
    !found.is_empty() && found.iter().all(|key| keys.contains(*key))
}

/// A certificate that signs itself, and its key.
fn identity() -> (Vec<u8>, Vec<u8>) {
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).expect("a curve");
    let key = PKey::from_ec_key(EcKey::generate(&group).expect("a key")).expect("a key");
    let mut builder = X509::builder().expect("a builder");
    builder.set_version(2).expect("a version");
    builder.set_pubkey(&key).expect("a key");
    builder.set_not_before(&Asn1Time::days_from_now(0).expect("a time")).expect("a time");
    builder.set_not_after(&Asn1Time::days_from_now(1).expect("a time")).expect("a time");
    builder.sign(&key, MessageDigest::sha256()).expect("signed");
    (builder.build().to_pem().expect("PEM"), key.private_key_to_pem_pkcs8().expect("PEM"))
}

/// The text with every file below /etc and /run that it names as one that is there.
fn with_files(yaml: &str, folder: &Path) -> String {
    let (certificate, key) = identity();
    let ends = |c: char| c.is_whitespace() || "}],\"'".contains(c);
    let mut made = String::new();
    let mut rest = yaml;
    while let Some(at) = ["/etc/", "/run/"].iter().filter_map(|start| rest.find(*start)).min() {
        let (before, from) = rest.split_at(at);
        let (path, later) = from.split_at(from.find(ends).unwrap_or(from.len()));
        let file = folder.join(path.trim_start_matches('/').replace('/', "_"));
        let content = match Path::new(path).extension().and_then(|end| end.to_str()) {
            Some("key") => key.as_slice(),
            Some("pem" | "crt") => certificate.as_slice(),
            Some(_) | None => SECRET.as_bytes(),
        };
        fs::write(&file, content).expect("written");
        made.push_str(before);
        made.push_str(&file.display().to_string());
        rest = later;
    }
    made + rest
}

/// What `validate` says of a configuration, or of a part of one: what every configuration has is put beside it.
fn validated(yaml: &str) -> Output {
    let folder = tempfile::tempdir().expect("a folder");
    let (config, files) = (folder.path().join("config"), folder.path().join("files"));
    for made in [&config, &files] {
        fs::create_dir(made).expect("a folder");
    }
    let yaml = with_files(yaml, &files);
    fs::write(config.join("block.yaml"), &yaml).expect("written");
    let others = [
        ("kafka", "kafka: {brokers: \"localhost:9092\"}\n"),
        ("postgres", "postgres: {url: \"postgresql://localhost/x\"}\n"),
        ("defaults", "defaults: {source: {topics: [t]}}\n"),
    ];
    let rest: String = others.into_iter().filter(|(key, _)| !has_key(&yaml, key)).map(|(_, text)| text).collect();
    if !rest.is_empty() {
        fs::write(config.join("rest.yaml"), rest).expect("written");
    }
    let mut command = Command::new(BINARY);
    command.args(["validate", "--config"]).arg(&config);
    for name in yaml.split("${").skip(1).filter_map(|reference| reference.split(['}', ':']).next()) {
        if name != "file" {
            command.env(name, SECRET);
        }
    }
    command.env("DATABASE_URL", "postgresql://localhost/x");
    command.output().expect("oncebox starts")
}

#[test]
fn every_configuration_in_a_page_is_accepted() {
    let (keys, mut checked) = (keys(), 0);
    for page in pages() {
        let is_checked = |block: &&Block| block.language == "yaml" && is_configuration(&block.text, &keys);
        for block in page.blocks.iter().filter(is_checked) {
            let output = validated(&block.text);
            assert!(output.status.success(), "{}:{}: {}", page.path.display(), block.line, said(&output));
            checked += 1;
        }
    }
    assert!(checked >= 6, "{checked} configurations");
}

/// What `--help` says of the verb that a command begins with.
fn help(words: &[&str]) -> String {
    let asked = |verb: &[&str]| {
        let output = Command::new(BINARY).args(verb).arg("--help").output().expect("oncebox starts");
        assert!(output.status.success(), "oncebox {}: {}", verb.join(" "), said(&output));
        said(&output)
    };
    let of_the_first = asked(&words[..1]);
    match of_the_first.contains("\nCommands:\n") {
        true => asked(words.get(..2).unwrap_or(words)),
        false => of_the_first,
    }
}

#[test]
fn every_command_in_a_page_exists_with_its_flags() {
    let mut checked = 0;
    for page in pages() {
        for block in page.blocks.iter().filter(|block| block.language == "sh") {
            for line in block.text.lines() {
                let command = line.split(" #").next().unwrap_or_default().trim();
                let Some(rest) = command.strip_prefix("oncebox ") else { continue };
                let words: Vec<&str> = rest.split_whitespace().collect();
                let help = help(&words);
                let known: BTreeSet<&str> = help.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).collect();
                for word in words.iter().filter(|word| word.starts_with("--")) {
                    let flag = word.split('=').next().unwrap_or_default();
                    assert!(known.contains(flag), "{}: `{command}`: no {flag}", page.path.display());
                }
                checked += 1;
            }
        }
    }
    assert!(checked >= 15, "{checked} commands");
}

#[test]
fn the_reference_of_the_configuration_is_what_the_schema_makes() {
    let schema = Command::new(BINARY).arg("schema").output().expect("oncebox starts");
    assert!(schema.status.success(), "{}", said(&schema));
    let python = Command::new("python3")
        .args(["dev/config-reference.py", "--check", "docs/configuration.md"])
        .current_dir(root())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut python) = python else {
        skip("the_reference_of_the_configuration_is_what_the_schema_makes", "no python3");
        return;
    };
    let mut input = python.stdin.take().expect("a pipe");
    input.write_all(&schema.stdout).expect("it reads");
    drop(input);
    let output = python.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", said(&output));
}

/// Every file below a folder, as lines without their indentation.
fn sources(folder: &Path, found: &mut Vec<Vec<String>>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let is_fetched = ["node_modules", "dist", "target"].iter().any(|name| path.ends_with(name));
        if path.is_dir() && !is_fetched {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end != "md")
            && let Ok(text) = fs::read_to_string(&path)
        {
            found.push(lines(&text));
        }
    }
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect()
}

/// Which its own tests run.
#[test]
fn the_code_in_a_kits_readme_is_that_of_its_sample() {
    let mut compared = 0;
    for page in pages().iter().filter(|page| page.path.starts_with("clients") && page.path.ends_with("README.md")) {
        let mut own = Vec::new();
        sources(&root().join(page.path.parent().expect("a folder")), &mut own);
        // What is written into a project's own files, and what one types.
        let is_code = |block: &&Block| !["sh", "toml", "xml", "js", "text"].contains(&block.language.as_str());
        for block in page.blocks.iter().filter(is_code) {
            let wanted = lines(&block.text);
            let is_there = own.iter().any(|file| file.windows(wanted.len()).any(|part| part == wanted));
            assert!(is_there, "{}:{}: no file of the kit has this", page.path.display(), block.line);
            compared += 1;
        }
    }
    assert!(compared >= 10, "{compared} blocks");
}

#[test]
fn completions_and_manual_pages_are_there_for_every_verb() {
    let asked = |arguments: &[&str]| {
        let output = Command::new(BINARY).args(arguments).output().expect("oncebox starts");
        assert!(output.status.success(), "oncebox {arguments:?}: {}", said(&output));
        String::from_utf8(output.stdout).expect("text")
    };
    let help = asked(&["--help"]);
    let (_, listed) = help.split_once("\nCommands:\n").expect("a list of verbs");
    let names = listed.lines().take_while(|line| !line.is_empty()).filter_map(|line| line.split_whitespace().next());
    let verbs: Vec<&str> = names.filter(|verb| *verb != "help").collect();
    assert!(verbs.len() >= 15, "{verbs:?}");

    // As each shell's own file names a verb.
    for (shell, named) in [("bash", "oncebox,VERB)"), ("zsh", "'VERB:"), ("fish", "-a \"VERB\"")] {
        let completions = asked(&["completions", shell]);
        for verb in &verbs {
            assert!(completions.contains(&named.replace("VERB", verb)), "{shell} does not complete {verb}");
        }
    }

    let folder = tempfile::tempdir().expect("a folder");
    let into = folder.path().join("man");
    asked(&["man", into.to_str().expect("text")]);
    for verb in &verbs {
        let page = fs::read_to_string(into.join(format!("oncebox-{verb}.1")));
        let page = page.unwrap_or_else(|error| panic!("the manual page of {verb}: {error}"));
        assert!(page.contains(&format!(".TH oncebox-{verb} ")), "{page}");
    }

    assert!(asked(&["--version"]).starts_with("oncebox "));
}
