//! What STATUS says about a host, in words that are the same for both.

use sanlock_conformance::raw::{Record, cmd, flag};

use crate::ground::{Class, class_of};
use crate::side::Side;

/// Flags of a resource that something is still to be done for (socket-protocol.md 8).
const EXAMINE: u32 = 0x2;
const RELEASE: u32 = 0x4;
/// A value block is still to be written.
const VALUE: u32 = 0x20;

/// How its process may not be stopped.
const RESTRICTED: u32 = 0x8 | 0x10;

/// A resource that the daemon knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) lockspace: String,
    pub(crate) name: String,
    /// What its process is called.
    pub(crate) of: String,
    pub(crate) shared: bool,
    pub(crate) orphan: bool,
}

/// A lockspace that the daemon knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Space {
    pub(crate) name: String,
    pub(crate) list: String,
    pub(crate) offset: u64,
    /// It ends, and waits for its users.
    pub(crate) dead: bool,
    pub(crate) used: bool,
    pub(crate) used_by_orphans: bool,
}

/// All of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct State {
    /// One line for each record that is compared.
    pub(crate) lines: Vec<String>,
    pub(crate) held: Vec<Held>,
    pub(crate) spaces: Vec<Space>,
    /// Nothing is under way that changes it.
    pub(crate) quiet: bool,
}

/// What is compared of each record, by its type.
const LOCKSPACE_KEYS: [&str; 13] = [
    "list",
    "io_timeout",
    "sector_size",
    "align_size",
    "host_generation",
    "renew_fail",
    "space_dead",
    "killing_pids",
    "external_used",
    "used_by_orphans",
    "corrupt_result",
    "acquire_last_result",
    "renewal_last_result",
];
const RESOURCE_KEYS: [&str; 4] = ["list", "sector_size", "align_size", "lver"];
const CLIENT_KEYS: [&str; 6] = ["flags", "restricted", "cmd_active", "pid_dead", "suspend", "need_free"];

fn values(record: &Record, keys: &[&str]) -> Vec<String> {
    keys.iter().map(|key| format!("{key}={}", record.get(key).unwrap_or("-"))).collect()
}

impl State {
    /// Asks the daemon.
    pub(crate) fn of(side: &mut Side) -> Self {
        side.reap();
        let (_, records) = side.host.connect().records(cmd::STATUS, 0, &[]);
        let alive = side.pids();
        let mut state = Self { lines: Vec::new(), held: Vec::new(), spaces: Vec::new(), quiet: true };
        for record in &records {
            state.add(side, record, &alive);
        }
        // In the order of slots, and which is free is a matter of how soon a connection that ended was noticed.
        let processes = state.lines.iter().take_while(|line| line.starts_with("client")).count();
        state.lines[..processes].sort();
        // Those of an adopted orphan are the newest in the original, and stay where they were in ours.
        state.lines[processes..].sort();
        // The daemon knows everybody who is registered, and nobody else.
        let known: Vec<u32> = records.iter().filter(|r| r.kind == 2).map(|r| r.data32).collect();
        state.quiet &= alive.iter().all(|pid| known.contains(pid));
        state.lines.push(format!("streams: {}", side.open_streams(usize::MAX)));
        state
    }

    fn add(&mut self, side: &Side, record: &Record, alive: &[u32]) {
        let values = |keys: &[&str]| values(record, keys);
        let is = |key: &str, value: &str| record.get(key) == Some(value);
        let line = match record.kind {
            2 if record.data32 != u32::MAX => {
                self.quiet &= alive.contains(&record.data32) && is("cmd_active", "0");
                format!("{} {:?}", side.label(record.data32), values(&CLIENT_KEYS))
            }
            3 => {
                let list = record.get("list").unwrap_or("").to_owned();
                let used = is("external_used", "1") || is("used_by_orphans", "1");
                self.quiet &= list == "spaces" || list == "rem" && used && alive.is_empty();
                self.spaces.push(Space {
                    name: record.name.clone(),
                    list,
                    offset: record.lockspace.as_ref().map_or(0, |lockspace| lockspace.offset),
                    dead: is("space_dead", "1"),
                    used: is("external_used", "1"),
                    used_by_orphans: is("used_by_orphans", "1"),
                });
                format!("lockspace {}:{} {:?}", record.name, record.data64, values(&LOCKSPACE_KEYS))
            }
            4 => self.resource(side, record),
            _ => return,
        };
        self.lines.push(line);
    }

    fn resource(&mut self, side: &Side, record: &Record) -> String {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (lockspace, wire_flags) = record
            .resource
            .as_ref()
            .map_or_else(Default::default, |resource| (text(&resource.lockspace), resource.flags));
        let shared = wire_flags & flag::RES_SHARED != 0;
        let list = record.get("list").unwrap_or("");
        let mut flags = u32::from_str_radix(record.get("flags").unwrap_or("0"), 16).unwrap_or(0);
        if list == "orphan" {
            // An orphan is marked by an examination, and nothing comes of it.
            flags &= !EXAMINE;
        }
        self.quiet &= matches!(list, "held" | "orphan") && flags & (EXAMINE | RELEASE) == 0;
        self.held.push(Held {
            lockspace: lockspace.clone(),
            name: record.name.clone(),
            of: side.label(record.data32),
            shared,
            orphan: list == "orphan",
        });
        let lver = record.data64;
        if shared {
            // The original keeps what was true of the lease before it was converted.
            flags &= !(RESTRICTED | VALUE);
        }
        if side.adopted.contains(&record.name) {
            // The original keeps what the process had restricted that left the orphan.
            flags &= !RESTRICTED;
        }
        // A lease that was converted to exclusive has no process in the original (W42), which is seen when it becomes an orphan.
        let converted = list == "orphan" && class_of(&record.name) == Some(Class::Shared);
        let owner = if converted { "any".to_owned() } else { side.label(record.data32) };
        let values = values(record, &RESOURCE_KEYS);
        let name = &record.name;
        format!(
            "resource {lockspace}:{name} lver {lver} of {owner} mode {wire_flags:#x} flags {flags:#x} {values:?}"
        )
    }

    /// A resource that is known by these names.
    pub(crate) fn find(&self, lockspace: &str, name: &str) -> Option<&Held> {
        self.held.iter().find(|held| held.lockspace == lockspace && held.name == name)
    }

    /// A lockspace of this name in any list.
    pub(crate) fn space(&self, name: &str) -> Option<&Space> {
        self.spaces.iter().find(|space| space.name == name)
    }

    /// What is different, for a report: the original's lines that ours has not, and the other way round.
    pub(crate) fn difference(&self, ours: &Self) -> Option<(String, String)> {
        if self.lines == ours.lines {
            return None;
        }
        let only = |of: &Self, other: &Self| {
            let missing: Vec<&str> =
                of.lines.iter().filter(|line| !other.lines.contains(line)).map(String::as_str).collect();
            if missing.is_empty() {
                format!("other order: {:#?}", of.lines)
            } else {
                missing.join("\n        ")
            }
        };
        Some((only(self, ours), only(ours, self)))
    }
}
