//! Why an acquire was refused: who holds the lease, how long since it was heard of, when the lease can be had.
//!
//! The daemon's answer is a number only, so the client asks again: READ_RESOURCE_OWNERS for the owner on disk, HOST_STATUS for
//! what this host has seen of it. Both answers may be newer than the refusal; the text says what they say.

use super::convert::name;
use crate::configured::likely_fire_timeout;
use crate::output::note;
use crate::progress::{left, passed_since};
use sanlock_client::wire::{Host, StateRecord, code};
use sanlock_client::{Client, ClientError};
use sanlock_lease::text::ResourceSpec;
use sanlock_lease::timing::IoTimeout;
use sanlock_sys::clock::boottime_seconds;
use std::time::{Duration, Instant};

/// For all questions about one refusal. The daemon reads disks for some, and one that is silent, perhaps the very one the lease is on, keeps nobody
/// from going on for long after the result is known.
const PATIENCE: Duration = Duration::from_secs(3);

/// Results that another host's ownership causes.
const OWNED: [i32; 5] = [
    code::SANLK_ACQUIRE_IDLIVE,
    code::SANLK_ACQUIRE_OWNED,
    code::SANLK_ACQUIRE_OTHER,
    code::SANLK_ACQUIRE_OWNED_RETRY,
    // Other hosts hold it shared.
    code::EAGAIN,
];

/// Explains on stderr, where a refused acquire has a cause that can be looked up.
pub(super) fn explain_refusal(
    client: &Client,
    action: &str,
    resources: &[ResourceSpec],
    error: &ClientError,
) {
    let ClientError::Daemon { code: result, .. } = error else { return };
    if OWNED.contains(result) {
        for line in explain_owners(client, resources, Instant::now() + PATIENCE) {
            note(action, &line);
        }
    }
}

/// The answer does not say which of the resources was refused: those that are owned are shown. Nothing, where none was given with its place: then
/// nobody has looked.
fn explain_owners(client: &Client, resources: &[ResourceSpec], end: Instant) -> Vec<String> {
    let mut placed = resources.iter().filter(|resource| !resource.disks.is_empty()).peekable();
    if placed.peek().is_none() {
        return Vec::new();
    }
    let mut lines = Vec::new();
    for resource in placed {
        lines.extend(explain_resource(client, resource, end));
        if end <= Instant::now() {
            return lines;
        }
    }
    if lines.is_empty() {
        lines.push("no host owns it any more: try again now".to_owned());
    }
    lines
}

/// Who owns a lease; nothing if nobody does.
fn explain_resource(client: &Client, resource: &ResourceSpec, end: Instant) -> Vec<String> {
    let title = format!("{}:{}", resource.lockspace, resource.name);
    let owners = match owners(&client.until(end), resource) {
        Ok(owners) => owners,
        Err(error) if error.result_code() == -libc::ETIMEDOUT => {
            let limit = PATIENCE.as_secs();
            return vec![format!(
                "{title}: the daemon has not read its owner within {limit} s; 'sanlock who {title}' waits for longer"
            )];
        }
        Err(error) => return vec![format!("{title}: the owner cannot be read: {error}")],
    };
    if owners.is_empty() {
        return Vec::new();
    }
    let own_id = own_host_id(&client.until(end), resource);
    let (own, others): (Vec<&Host>, Vec<&Host>) =
        owners.iter().partition(|owner| Some(owner.host_id.get()) == own_id);
    if let (Some(own), true) = (own.first(), others.is_empty()) {
        let (host_id, generation) = (own.host_id, own.generation);
        return vec![format!(
            "{title} has no owner but this host (host {host_id} generation {generation}): 'sanlock client status' shows which of its processes have it"
        )];
    }
    let seen = client.until(end).host_status(name(resource.lockspace)).unwrap_or_default();
    let now = boottime_seconds();
    let describe = |owner: &&Host| {
        let seen = seen.iter().find_map(|record| Seen::of_host(record, owner.host_id.get()));
        describe_owner(&title, owner, seen.as_ref(), now)
    };
    others.iter().flat_map(describe).collect()
}

fn owners(client: &Client, resource: &ResourceSpec) -> Result<Vec<Host>, ClientError> {
    Ok(super::owners(client, resource.lockspace, resource.name, &resource.disks)?.1)
}

/// This host's id in the lockspace, if it is joined.
fn own_host_id(client: &Client, resource: &ResourceSpec) -> Option<u64> {
    let wanted = name(resource.lockspace);
    let lockspaces = client.get_lockspaces().unwrap_or_default();
    lockspaces.iter().find(|lockspace| lockspace.name == wanted).map(|lockspace| lockspace.host_id.get())
}

/// What this host has seen of another one.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    /// Generation in its host id lease now.
    generation: u64,
    /// Its clock at its last renewal; 0: it left.
    timestamp: u64,
    /// Our clock when that timestamp was first seen; 0: never.
    last_live: u64,
    io_timeout: IoTimeout,
    name: String,
}

impl Seen {
    fn of_host(record: &StateRecord, host_id: u64) -> Option<Self> {
        if u64::from(record.data32) != host_id {
            return None;
        }
        let number = |key: &str| -> Option<u64> { std::str::from_utf8(record.get(key)?).ok()?.parse().ok() };
        let io_timeout = u16::try_from(number("io_timeout")?).unwrap_or(u16::MAX);
        Some(Self {
            generation: number("owner_generation")?,
            timestamp: number("timestamp")?,
            last_live: number("last_live")?,
            io_timeout: IoTimeout::from_disk(io_timeout, IoTimeout::DEFAULT),
            name: String::from_utf8_lossy(record.get("owner_name").unwrap_or_default()).into_owned(),
        })
    }
}

/// What to tell about an owner. `now`: our monotonic clock in seconds.
fn describe_owner(title: &str, owner: &Host, seen: Option<&Seen>, now: u64) -> Vec<String> {
    let (host_id, generation) = (owner.host_id, owner.generation);
    let how = if owner.timestamp.get() == 0 { "held shared" } else { "held" };
    let Some(seen) = seen else {
        return vec![format!(
            "{title} is {how} by host {host_id} generation {generation}, of which this host knows nothing more yet"
        )];
    };
    let holder = format!("{title} is {how} by host {host_id} {:?} generation {generation}", seen.name);
    if seen.generation < generation.get() {
        // The table is older than the lease; or the record was damaged before this host joined.
        return vec![
            format!("{holder}, of which this host has seen only generation {} yet", seen.generation),
            format!(
                "if that stays so, its host id record may be damaged, and it may be at work: 'sanlock who {title}' tells"
            ),
        ];
    }
    if seen.timestamp == 0 || seen.generation != generation.get() {
        // HOST_STATUS says the same of a record that was overwritten, which frees nothing.
        return vec![
            format!("{holder}, which has left the lockspace or joined again since: try again now"),
            format!(
                "if that is refused too, its host id record may be damaged, and it may be at work: 'sanlock who {title}' tells"
            ),
        ];
    }
    if seen.last_live == 0 {
        return vec![format!("{holder}, which this host has not seen renewing yet")];
    }
    let age = now.saturating_sub(seen.last_live);
    // Dead means silent for longer than this.
    let wait = (seen.io_timeout.host_dead_secs(likely_fire_timeout()) + 1).saturating_sub(age);
    let outlook = if wait == 0 {
        "that host counts as dead: try again now".to_owned()
    } else if age > seen.io_timeout.renewal_fail_secs() {
        format!("that host is failing: the lease can be taken in {wait} s at the earliest")
    } else {
        format!(
            "unless it is released, it can be taken in {wait} s at the earliest, and only if that host stops renewing now"
        )
    };
    vec![format!("{holder}, last seen renewing {age} s ago"), outlook]
}

/// Seconds between two looks at an owner that is waited for.
const LOOK_EVERY: u64 = 10;

/// What an acquire waits for that has not been answered at once: an owner that may still live, mostly.
pub(super) struct Waiting {
    client: Client,
    resources: Vec<ResourceSpec>,
    /// When it was looked at last, in seconds since the acquire began, and what for so many seconds more.
    found: Option<(u64, Option<(String, u64)>)>,
}

impl Waiting {
    pub(super) fn new(client: &Client, resources: &[ResourceSpec]) -> Self {
        Self { client: client.clone(), resources: resources.to_vec(), found: None }
    }

    /// What to say after so much time; asks the daemon now and then.
    pub(super) fn tell(&mut self, passed: Duration) -> String {
        let passed = passed.as_secs();
        let fresh = self.found.as_ref().filter(|(at, _)| passed < at + LOOK_EVERY);
        let (at, outlook) = match fresh {
            Some(found) => found.clone(),
            None => {
                let found = (passed, self.look());
                self.found = Some(found.clone());
                found
            }
        };
        match outlook {
            Some((what, wait)) => left(&what, at + wait, passed),
            None => passed_since("waiting for the disks of the leases", passed),
        }
    }

    /// The first owner that is waited for.
    fn look(&self) -> Option<(String, u64)> {
        self.resources.iter().filter(|resource| !resource.disks.is_empty()).find_map(|resource| {
            let owners = owners(&self.client, resource).ok()?;
            let own = own_host_id(&self.client, resource);
            let records = self.client.host_status(name(resource.lockspace)).ok()?;
            let title = format!("{}:{}", resource.lockspace, resource.name);
            owners.iter().filter(|owner| Some(owner.host_id.get()) != own).find_map(|owner| {
                let seen = records.iter().find_map(|record| Seen::of_host(record, owner.host_id.get()))?;
                Some(awaited(&title, owner, &seen, boottime_seconds()))
            })
        })
    }
}

/// An owner that is waited for, and the seconds until it must be dead.
fn awaited(title: &str, owner: &Host, seen: &Seen, now: u64) -> (String, u64) {
    let what = format!("{title} is held by host {} {:?}", owner.host_id, seen.name);
    if seen.generation < owner.generation.get() {
        let (held, seen) = (owner.generation, seen.generation);
        return (
            format!("{what} generation {held}, of which this host has seen only generation {seen} yet"),
            0,
        );
    }
    if seen.timestamp == 0 || seen.generation != owner.generation.get() || seen.last_live == 0 {
        return (format!("{what}, which has left or was not seen yet, or whose record is damaged"), 0);
    }
    let age = now.saturating_sub(seen.last_live);
    let wait = (seen.io_timeout.host_dead_secs(likely_fire_timeout()) + 1).saturating_sub(age);
    (format!("{what}, silent for {age} s: waiting until that must be dead"), wait)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanlock_client::wire::{StateRecord, StateText};

    fn owner(timestamp: u64) -> Host {
        Host {
            host_id: 1.into(),
            generation: 3.into(),
            timestamp: timestamp.into(),
            io_timeout: 0.into(),
            flags: 0.into(),
        }
    }

    fn seen(last_live: u64) -> Seen {
        Seen {
            generation: 3,
            timestamp: 500,
            last_live,
            io_timeout: IoTimeout::new(10).unwrap(),
            name: "hostA".to_owned(),
        }
    }

    #[test]
    fn a_live_owner() {
        assert_eq!(
            describe_owner("LS:R", &owner(7), Some(&seen(996)), 1000),
            [
                "LS:R is held by host 1 \"hostA\" generation 3, last seen renewing 4 s ago",
                "unless it is released, it can be taken in 137 s at the earliest, and only if that host stops renewing now",
            ]
        );
    }

    #[test]
    fn an_owner_that_fails_and_one_that_is_dead() {
        let failing = describe_owner("LS:R", &owner(7), Some(&seen(900)), 1000);
        assert_eq!(failing[1], "that host is failing: the lease can be taken in 41 s at the earliest");
        let dead = describe_owner("LS:R", &owner(7), Some(&seen(859)), 1000);
        assert_eq!(dead[1], "that host counts as dead: try again now");
        let nearly = describe_owner("LS:R", &owner(7), Some(&seen(860)), 1000);
        assert!(nearly[1].ends_with("in 1 s at the earliest"), "{nearly:?}");
    }

    #[test]
    fn an_owner_that_is_waited_for() {
        let (what, wait) = awaited("LS:R", &owner(7), &seen(900), 1000);
        assert_eq!(
            what,
            "LS:R is held by host 1 \"hostA\", silent for 100 s: waiting until that must be dead"
        );
        assert_eq!(wait, 41);
        assert_eq!(awaited("LS:R", &owner(7), &seen(859), 1000).1, 0);
        assert!(awaited("LS:R", &owner(7), &Seen { timestamp: 0, ..seen(900) }, 1000).0.contains("has left"));
        // Between two looks the seconds are counted down.
        let found = Some((20, Some(("x".to_owned(), 41))));
        let mut waiting = Waiting { client: Client::new(), resources: Vec::new(), found };
        assert_eq!(waiting.tell(Duration::from_secs(25)), "36 s left: x");
        assert!(waiting.tell(Duration::from_secs(30)).starts_with("30 s so far: waiting for the disks"));
    }

    #[test]
    fn owners_that_are_gone_or_unknown() {
        let left = Seen { timestamp: 0, ..seen(900) };
        let again = Seen { generation: 4, ..seen(990) };
        for seen in [left, again] {
            let lines = describe_owner("LS:R", &owner(7), Some(&seen), 1000);
            assert!(
                lines[0].ends_with("has left the lockspace or joined again since: try again now"),
                "{lines:?}"
            );
            assert!(lines[1].contains("its host id record may be damaged"), "{lines:?}");
        }
        assert!(describe_owner("LS:R", &owner(7), None, 1000)[0].contains("knows nothing more yet"));
        assert!(describe_owner("LS:R", &owner(7), Some(&seen(0)), 1000)[0].contains("not seen renewing yet"));
        assert!(
            describe_owner("LS:R", &owner(0), Some(&seen(990)), 1000)[0].contains("is held shared by host 1")
        );
    }

    /// What is known of an earlier instance says nothing of the one that holds the lease.
    #[test]
    fn an_owner_that_has_joined_again_and_was_not_seen_since_is_not_gone() {
        for timestamp in [0, 500] {
            let earlier = Seen { generation: 2, timestamp, ..seen(700) };
            let expected = "LS:R is held by host 1 \"hostA\" generation 3, of which this host has seen only generation 2 yet";
            let lines = describe_owner("LS:R", &owner(7), Some(&earlier), 1000);
            assert_eq!(lines[0], expected);
            assert!(lines[1].starts_with("if that stays so, its host id record may be damaged"), "{lines:?}");
            assert_eq!(awaited("LS:R", &owner(7), &earlier, 1000), (expected.to_owned(), 0));
        }
    }

    #[test]
    fn host_records_are_understood() {
        let text = StateText::default();
        let mut record = StateRecord::host(1, 500, text);
        assert_eq!(Seen::of_host(&record, 1), None);
        record.text = b"last_check=999 last_live=996 last_req=0 owner_id=1 owner_generation=3 timestamp=500 io_timeout=10 \
                        owner_name=hostA"
            .to_vec();
        assert_eq!(Seen::of_host(&record, 1), Some(seen(996)));
        assert_eq!(Seen::of_host(&record, 2), None);
    }
}
