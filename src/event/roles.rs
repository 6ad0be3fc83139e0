//! What a process does of it all: reading, sending, answering operators. All three, unless it was told otherwise.

use std::fmt;

/// The roles of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Roles {
    /// Reads records and stores what they make.
    pub ingest: bool,
    /// Sends what is stored, and reads what is sent without being stored.
    pub relay: bool,
    /// Answers the API and shows the dashboard; replays, and takes events over HTTP.
    pub admin: bool,
}

impl Roles {
    pub const ALL: Self = Self { ingest: true, relay: true, admin: true };

    /// Whether it reads the records of a workflow, of which it may be that they are sent without being stored.
    pub fn read(self, is_direct: bool) -> bool {
        if is_direct { self.relay } else { self.ingest }
    }
}

impl fmt::Display for Roles {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [(self.ingest, "ingest"), (self.relay, "relay"), (self.admin, "admin")];
        let has: Vec<&str> = all.iter().filter(|(has, _)| *has).map(|(_, name)| *name).collect();
        out.write_str(&has.join(","))
    }
}
