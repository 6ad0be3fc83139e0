//! When the files behind a workflow's secrets have changed: looked at once a second at most, by what they are now.
//!
//! Links are followed. Kubernetes replaces a mounted secret by pointing a link at another directory, so that the file
//! behind the same path is another one.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How one file looks: which it is, how long, and when it was written. Nothing when it is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look(Option<(u64, u64, u64, i64, i64)>);

pub struct SecretFiles {
    paths: BTreeSet<PathBuf>,
    /// Before the first look nothing is known: the files may have changed since the configuration was read.
    looks: Option<Vec<Look>>,
    looked_at: Option<Instant>,
}

impl SecretFiles {
    pub fn new(paths: BTreeSet<PathBuf>) -> Self {
        Self { paths, looks: None, looked_at: None }
    }

    pub fn is_due(&self, now: Instant) -> bool {
        self.looked_at.is_none_or(|looked_at| now.duration_since(looked_at) >= LOOK_EVERY)
    }

    /// How the files look now, if that is not how they looked when they were read. Taken before they are read: what is
    /// written meanwhile is found by the next look.
    pub fn changed(&mut self, now: Instant) -> Option<Vec<Look>> {
        self.looked_at = Some(now);
        let looks: Vec<Look> = self.paths.iter().map(|path| Look::at(path)).collect();
        (self.looks.as_ref() != Some(&looks)).then_some(looks)
    }

    pub fn were_read(&mut self, looks: Vec<Look>) {
        self.looks = Some(looks);
    }
}

impl Look {
    fn at(path: &Path) -> Self {
        let known = fs::metadata(path).ok();
        Self(known.map(|file| (file.dev(), file.ino(), file.size(), file.mtime(), file.mtime_nsec())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_seen_once_a_second_and_until_it_was_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        fs::write(&path, "one").unwrap();
        let mut files = SecretFiles::new([path.clone()].into());
        let now = Instant::now();
        assert!(files.is_due(now));
        let looks = files.changed(now).expect("nothing is known before the first look");
        files.were_read(looks);
        assert!(!files.is_due(now + Duration::from_millis(900)) && files.is_due(now + Duration::from_secs(1)));
        assert!(files.changed(now).is_none());
        fs::write(&path, "three").unwrap();
        assert!(files.changed(now).is_some() && files.changed(now).is_some(), "nobody read it yet");
        fs::remove_file(&path).unwrap();
        assert!(files.changed(now).is_some());
    }

    #[test]
    fn a_link_that_points_elsewhere_is_a_change() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("..data");
        for name in ["one", "two"] {
            fs::create_dir(folder.path().join(name)).unwrap();
            fs::write(folder.path().join(name).join("token"), "same").unwrap();
        }
        std::os::unix::fs::symlink(folder.path().join("one"), &link).unwrap();
        let mut files = SecretFiles::new([link.join("token")].into());
        let looks = files.changed(Instant::now()).expect("the first look");
        files.were_read(looks);
        fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(folder.path().join("two"), &link).unwrap();
        assert!(files.changed(Instant::now()).is_some());
    }
}
