//! Enters: a path to a file or a directory. Leaves: the checked configuration with its warnings, or all problems.
//!
//! A directory's `*.yaml` files are merged: `workflows` lists are joined, any other key may stand in one file only.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::checked::{Config, Workflow};
use super::node::{Content, Entry, Node};
use super::problem::{Place, Problem, Problems};
use super::raw::RawConfig;
use super::raw_workflow::RawWorkflow;
use super::substitute::{Sources, substitute};
use super::{check, parse, secrets_check, shape};

/// A configuration that passed, with the tree that tells where each value was written.
#[derive(Debug, Clone)]
pub struct Loaded {
    pub config: Config,
    pub tree: Node,
    pub warnings: Vec<Problem>,
}

impl Loaded {
    /// A problem with the value that a JSON pointer names.
    pub fn problem(&self, pointer: &str, message: String) -> Problem {
        let node = self.tree.nearest(pointer);
        Problem::new(node.place.clone(), node.as_written(message)).about(pointer)
    }

    /// A workflow as written, with its defaults: for what no stage has taken up yet.
    pub fn raw(&self, workflow: &Workflow) -> RawWorkflow {
        let node = self.tree.nearest(&format!("/workflows/{}", workflow.index));
        serde_json::from_value(node.without_nulls()).expect("it was read when the configuration was loaded")
    }

    /// What was written at a place, when a reference was filled in there.
    pub fn written(&self, pointer: &str) -> Option<&str> {
        match &self.tree.nearest(pointer).content {
            Content::Scalar(scalar) => scalar.written.as_deref(),
            Content::List(_) | Content::Map(_) => None,
        }
    }
}

/// Reads and checks. What could be read is there even with problems, so that later checks can add theirs.
pub fn read(path: &Path) -> (Option<Loaded>, Problems) {
    let mut problems = Problems::default();
    let mut trees = Vec::new();
    for file in files(path, &mut problems) {
        let name: Arc<str> = file.display().to_string().into();
        match fs::read_to_string(&file) {
            Ok(text) => trees.extend(parse::parse(&name, &text, &mut problems)),
            Err(error) => {
                problems.push(Problem::new(Place::new(&name, 1, 1), format!("cannot be read: {error}")));
            }
        }
    }
    if !problems.is_empty() && trees.is_empty() {
        return (None, problems);
    }
    let mut tree = merge(trees, path, &mut problems);
    secrets_check::literal_secrets(&tree, &mut problems);
    substitute(&mut tree, &Sources::system(), &mut problems);
    finish(tree, problems)
}

/// The configuration, or every problem of it.
pub fn load(path: &Path) -> Result<Loaded, Problems> {
    match read(path) {
        (Some(loaded), problems) if problems.is_empty() => Ok(loaded),
        (_, problems) => Err(problems),
    }
}

/// What the files of a configuration hold.
pub type Digest = [u8; 32];

/// Tells one content of the files from another; nothing when they cannot be read.
pub fn digest(path: &Path) -> Option<Digest> {
    let mut hash = Sha256::new();
    for file in files(path, &mut Problems::default()) {
        hash.update(file.display().to_string().as_bytes());
        hash.update(fs::read(&file).ok()?);
    }
    Some(hash.finalize().into())
}

/// A workflow that was stored as written, with its references resolved here.
pub fn stored(document: &str) -> Result<Workflow, Problems> {
    let mut problems = Problems::default();
    let name: Arc<str> = "the stored configuration".into();
    // The rest of a configuration is not stored with a workflow and does not matter to it.
    let text = format!("{{\"postgres\": {{\"url\": \"postgres://unused\"}}, \"workflows\": [{document}]}}");
    let Some(mut tree) = parse::parse(&name, &text, &mut problems) else { return Err(problems) };
    substitute(&mut tree, &Sources::system(), &mut problems);
    let (loaded, problems) = finish(tree, problems);
    match loaded.and_then(|loaded| loaded.config.workflows.into_iter().next()) {
        Some(workflow) if problems.is_empty() => Ok(Arc::unwrap_or_clone(workflow)),
        _ => Err(problems),
    }
}

/// Everything after the text is read.
fn finish(mut tree: Node, mut problems: Problems) -> (Option<Loaded>, Problems) {
    let misfits = shape::check(&tree, &mut problems);
    // What does not fit is reported and taken out, so that the rest can be checked too. That it is missing now is not
    // worth a word of its own.
    let mut silenced: Vec<Place> = Vec::new();
    for pointer in &misfits {
        let parent = pointer.rsplit_once('/').map_or("", |(parent, _)| parent);
        silenced.extend([tree.nearest(pointer).place.clone(), tree.nearest(parent).place.clone()]);
        tree.remove(pointer);
    }
    let tree = with_defaults(tree);
    let raw: RawConfig = match serde_json::from_value(tree.without_nulls()) {
        Ok(raw) => raw,
        Err(error) => {
            if problems.is_empty() {
                problems.push(Problem::new(tree.place.clone(), format!("cannot be read: {error}")));
            }
            return (None, problems);
        }
    };
    let (mut found, mut warnings) = (Problems::default(), Problems::default());
    let config = check::check(&raw, &tree, &mut found, &mut warnings);
    found.sorted().into_iter().filter(|p| !silenced.contains(&p.place)).for_each(|p| problems.push(p));
    (config.map(|config| Loaded { config, tree, warnings: warnings.sorted() }), problems)
}

fn files(path: &Path, problems: &mut Problems) -> Vec<PathBuf> {
    if !path.is_dir() {
        return vec![path.to_owned()];
    }
    let mut found: Vec<PathBuf> = fs::read_dir(path)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok().map(|e| e.path()))
        .filter(|file| file.extension().is_some_and(|e| e == "yaml"))
        .collect();
    found.sort();
    if found.is_empty() {
        let name: Arc<str> = path.display().to_string().into();
        problems.push(Problem::new(Place::new(&name, 1, 1), "the directory has no *.yaml file".to_owned()));
    }
    found
}

fn merge(trees: Vec<Node>, path: &Path, problems: &mut Problems) -> Node {
    let mut merged: Vec<Entry> = Vec::new();
    let name: Arc<str> = path.display().to_string().into();
    let mut place = Place::new(&name, 1, 1);
    for tree in trees {
        place = tree.place.clone();
        match tree.content {
            Content::Map(entries) => {
                for entry in entries {
                    add(&mut merged, entry, problems);
                }
            }
            // An empty file, or one with only comments.
            Content::Scalar(scalar) if scalar.plain && scalar.text.is_empty() => {}
            Content::Scalar(_) | Content::List(_) => problems.push(
                Problem::new(tree.place, "not a map".to_owned()).allowed("keys such as kafka, postgres, workflows"),
            ),
        }
    }
    Node { place, content: Content::Map(merged) }
}

fn add(merged: &mut Vec<Entry>, entry: Entry, problems: &mut Problems) {
    let Some(known) = merged.iter_mut().find(|e| e.key == entry.key) else {
        merged.push(entry);
        return;
    };
    match (&mut known.value.content, entry.value.content) {
        (Content::List(workflows), Content::List(more)) if entry.key == "workflows" => workflows.extend(more),
        _ => problems.push(
            Problem::new(entry.key_place, format!("`{}` stands in two files", entry.key))
                .allowed(format!("one; the other is at {}", known.key_place)),
        ),
    }
}

/// Puts `defaults` under every workflow, key by key; a workflow's own value wins, lists whole.
fn with_defaults(mut tree: Node) -> Node {
    let Some(defaults) = tree.get("defaults").cloned() else { return tree };
    if let Content::Map(entries) = &mut tree.content
        && let Some(workflows) = entries.iter_mut().find(|e| e.key == "workflows")
        && let Content::List(items) = &mut workflows.value.content
    {
        items.iter_mut().for_each(|workflow| underlay(workflow, &defaults));
    }
    tree
}

/// Keys of which one is written instead of the other: a workflow's own choice leaves the default's out.
const ALTERNATIVES: [&[&str]; 2] = [&["backoff", "backoffMs"], &["basic", "bearer", "oauth2"]];

fn underlay(node: &mut Node, defaults: &Node) {
    let (Content::Map(own), Content::Map(given)) = (&mut node.content, &defaults.content) else { return };
    for entry in given {
        let rivals = ALTERNATIVES.iter().filter(|group| group.contains(&entry.key.as_str())).copied().flatten();
        if rivals.into_iter().any(|rival| *rival != entry.key && own.iter().any(|e| e.key == *rival)) {
            continue;
        }
        match own.iter_mut().find(|e| e.key == entry.key) {
            // A list and a map of `backoff` exclude each other; maps of the same key are merged.
            Some(existing) => underlay(&mut existing.value, &entry.value),
            None => own.push(entry.clone()),
        }
    }
}
