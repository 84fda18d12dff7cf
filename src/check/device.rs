//! The block devices under a lease: sizes, paths to them, and how long the kernel lets I/O hang before it says so.

use super::finding::Findings;
use super::multipath::{Config, Device, NoPath, Said};
use super::root::Root;
use sanlock_lease::timing::IoTimeout;
use std::collections::BTreeMap;

/// Devices of one stack that are looked at: more than any volume manager builds.
const DEVICES_MAX: usize = 256;
/// Seconds between two checks of paths, unless configured (multipath.conf(5)).
const POLLING_INTERVAL: u64 = 5;
/// Sectors of `/sys/class/block/*/start` in 4096 bytes.
const SECTORS_PER_4K: u64 = 8;

/// A device and everything it lies on, the device first.
#[derive(Clone, Debug, Default)]
pub(super) struct Stack {
    /// Names in `/sys/class/block`.
    names: Vec<String>,
}

/// A disk at the bottom of a stack.
struct Disk<'a> {
    name: &'a str,
    /// Its directory below `/sys/devices`, which shows how it is attached.
    place: String,
}

impl Stack {
    /// Of the device with these numbers, `MAJOR:MINOR`.
    pub(super) fn of(root: &Root, numbers: &str) -> Self {
        let mut stack = Self::default();
        let name = root.resolve(&format!("/sys/dev/block/{numbers}"));
        if let Some(name) = name.as_deref().and_then(|path| path.rsplit('/').next()) {
            stack.add(root, name);
        }
        stack
    }

    fn add(&mut self, root: &Root, name: &str) {
        if self.names.len() >= DEVICES_MAX || self.names.iter().any(|known| known == name) {
            return;
        }
        self.names.push(name.to_owned());
        if root.is_there(&class(name, "partition")) {
            let place = root.resolve(&format!("/sys/class/block/{name}")).unwrap_or_default();
            if let Some(disk) = place.rsplit('/').nth(1) {
                self.add(root, disk);
            }
        }
        for below in root.names(&class(name, "slaves")) {
            self.add(root, &below);
        }
    }

    /// Says what is wrong with them.
    pub(super) fn judge(&self, root: &Root, io_timeout: IoTimeout, found: &mut Findings) {
        for name in &self.names {
            sizes(root, name, found);
        }
        let multipath: Vec<&str> =
            self.names.iter().map(String::as_str).filter(|n| is_multipath(root, n)).collect();
        let disks: Vec<Disk<'_>> = self.disks(root);
        for map in &multipath {
            judge_multipath(root, map, io_timeout, found);
        }
        if multipath.is_empty() {
            same_disk_twice(root, &disks, found);
        }
        for disk in &disks {
            judge_disk(root, disk, !multipath.is_empty(), io_timeout, found);
        }
    }

    /// Says what formatting it has to mind, where leases lie on the device itself.
    pub(super) fn judge_sectors(&self, root: &Root, found: &mut Findings) {
        let Some(name) = self.names.first() else { return };
        let sizes = ["logical", "physical"].map(|kind| queue(root, name, &format!("{kind}_block_size")));
        if sizes == [Some(512), Some(4096)] {
            found.note(
                "512e",
                format!("{name} has 512-byte sectors on 4096-byte blocks (512e)"),
                "sanlock 3.8 and this program format it with 512-byte sectors unless told otherwise, 5.x with 4096",
                "where versions are mixed, say the sizes when formatting: -Z 512 -A 1M, or -Z 4096 -A 8M",
            );
        }
    }

    fn disks(&self, root: &Root) -> Vec<Disk<'_>> {
        let lies_on_nothing = |name: &&String| {
            root.names(&class(name, "slaves")).is_empty() && !root.is_there(&class(name, "partition"))
        };
        let disk = |name: &'_ String| root.resolve(&format!("/sys/class/block/{name}"));
        self.names
            .iter()
            .filter(lies_on_nothing)
            .map(|name| Disk { name, place: disk(name).unwrap_or_default() })
            .collect()
    }
}

fn class(name: &str, file: &str) -> String {
    format!("/sys/class/block/{name}/{file}")
}

/// A number of a device's queue; a partition has that of its disk.
fn queue(root: &Root, name: &str, file: &str) -> Option<u64> {
    let own = root.number(&class(name, &format!("queue/{file}")));
    own.or_else(|| {
        let place = root.resolve(&format!("/sys/class/block/{name}"))?;
        root.number(&class(place.rsplit('/').nth(1)?, &format!("queue/{file}")))
    })
}

fn is_multipath(root: &Root, name: &str) -> bool {
    root.text(&class(name, "dm/uuid")).is_some_and(|uuid| uuid.starts_with("mpath-"))
}

fn sizes(root: &Root, name: &str, found: &mut Findings) {
    let number = |file: &str| root.number(&class(name, file));
    let logical = number("queue/logical_block_size").unwrap_or(512);
    if !matches!(logical, 512 | 4096) {
        found.problem(
            "block-size",
            format!("{name} has blocks of {logical} bytes"),
            "leases have sectors of 512 or 4096 bytes, which cannot be written one by one here",
            "use another device, or one formatted with 512 or 4096-byte blocks",
        );
    }
    if number("ro") == Some(1) {
        found.problem(
            "device-read-only",
            format!("{name} is read-only"),
            "every renewal writes",
            "make it writable: blockdev --setrw, or the export on the storage",
        );
    }
    let offset = number("alignment_offset").unwrap_or(0);
    let start = number("start").filter(|_| root.is_there(&class(name, "partition")));
    let physical = queue(root, name, "physical_block_size").unwrap_or(512);
    let crosses = start.is_some_and(|start| physical >= 4096 && start % SECTORS_PER_4K != 0);
    if offset != 0 || crosses {
        let seen = match start {
            Some(start) => format!("{name} begins at sector {start} of a disk with {physical}-byte blocks"),
            None => format!("{name} is {offset} bytes off the blocks of its disk"),
        };
        found.warning(
            "misaligned",
            seen,
            "a sector of a lease lies across two blocks of the disk: each write is a read and a write there, slow, and not whole after a power failure",
            "begin the partition at a multiple of 1 MiB",
        );
    }
}

fn judge_multipath(root: &Root, name: &str, io_timeout: IoTimeout, found: &mut Findings) {
    let budget = io_timeout.renewal_fail_secs();
    let shown = root.text(&class(name, "dm/name")).unwrap_or_else(|| name.to_owned());
    let paths = root.names(&class(name, "slaves"));
    if paths.len() < 2 {
        found.warning(
            "one-path",
            format!("multipath device {shown} has {} path", paths.len()),
            "the next failure takes the storage away, and every host that lost its last path stops what uses its leases",
            "look at multipath -ll: is a path missing, or was there never a second one?",
        );
    }
    for path in &paths {
        let state = root.text(&class(path, "device/state")).unwrap_or_else(|| "running".to_owned());
        if state != "running" && state != "live" {
            found.warning(
                "path-down",
                format!("path {path} of multipath device {shown} is {state}"),
                "there is less left to fail than there should be",
                "find out why: cable, switch, target; multipath -ll shows its state",
            );
        }
    }
    let said = said_of(root, name, &paths);
    let interval = said.polling_interval.unwrap_or(POLLING_INTERVAL);
    if said.no_path.is_none() {
        let but = if said.no_path_by_default.is_some() { ", but in defaults" } else { "" };
        found.note(
            "no-path-retry-not-said",
            format!("multipath.conf does not say no_path_retry for {shown}{but}"),
            "where multipath's built-in table of products has an entry for this storage, it decides what happens without a path",
            "multipathd show config shows it; say it in overrides of multipath.conf: a number of retries, or fail",
        );
    }
    match said.no_path.or(said.no_path_by_default) {
        None | Some(NoPath::Fail) => {}
        Some(NoPath::Queue) => found.problem(
            "multipath-queues",
            format!("no_path_retry is queue for {shown}: I/O without a path waits for ever"),
            "programs that use the storage cannot be killed then, so a host that loses its storage is reset by its watchdog instead of just stopping them",
            &format!("set no_path_retry to a number of retries that is over before {budget} s, say 4"),
        ),
        Some(NoPath::Retries(retries)) if retries.saturating_mul(interval) >= budget => found.warning(
            "multipath-queues-long",
            format!("no_path_retry {retries} lets I/O wait {} s for {shown}", retries.saturating_mul(interval)),
            &format!("sanlock gives up after {budget} s; programs whose I/O still waits then cannot be killed in time, and the watchdog resets the host"),
            "lower no_path_retry, so that it times polling_interval stays well below that time",
        ),
        Some(NoPath::Retries(_)) => {}
    }
}

fn said_of(root: &Root, name: &str, paths: &[String]) -> Said {
    let Some(config) = Config::of(root) else { return Said::default() };
    let uuid = root.text(&class(name, "dm/uuid")).unwrap_or_default();
    let of_path = |file: &str| {
        paths.first().and_then(|path| root.text(&class(path, &format!("device/{file}")))).unwrap_or_default()
    };
    let (vendor, product) = (of_path("vendor"), of_path("model"));
    let wwid = uuid.strip_prefix("mpath-").unwrap_or_default();
    config.of_device(&Device { wwid, vendor: vendor.trim(), product: product.trim() })
}

/// Two disks that are one, without multipath above them.
fn same_disk_twice(root: &Root, disks: &[Disk<'_>], found: &mut Findings) {
    let wwid =
        |name: &str| root.text(&class(name, "device/wwid")).or_else(|| root.text(&class(name, "wwid")));
    let ours: BTreeMap<String, &str> =
        disks.iter().filter_map(|disk| Some((wwid(disk.name)?, disk.name))).collect();
    for other in root.names("/sys/class/block") {
        let is_partition = root.is_there(&class(&other, "partition"));
        let Some(first) = wwid(&other).filter(|_| !is_partition).and_then(|id| ours.get(&id).copied()) else {
            continue;
        };
        // The kernel's own multipath of NVMe shows its paths too, as what nobody can open, with the identity of the one disk that they are.
        let hidden = root.number(&class(&other, "hidden")) == Some(1);
        if first != other && !hidden {
            found.warning(
                "no-multipath",
                format!("{first} and {other} are two paths to one disk, and only {first} is used"),
                "when this path fails the storage is lost although another path works",
                "use the disk through multipath",
            );
        }
    }
}

/// How long the transport of a disk lets I/O hang.
fn judge_disk(root: &Root, disk: &Disk<'_>, multipath: bool, io_timeout: IoTimeout, found: &mut Findings) {
    let fail = io_timeout.renewal_fail_secs();
    // A path may be lost right before a renewal is due: that one hangs in it, and 2T of the time are over.
    let budget = if multipath { io_timeout.renewal_warn_secs() } else { fail };
    let name = disk.name;
    let part = |prefix: &str| {
        disk.place.split('/').find(|part| {
            part.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        })
    };
    let found_late = "a path that is lost is noticed only then, and until then renewals hang in it although another path works";
    let why_path = format!(
        "{found_late}; a renewal may be up to {} s old by then, and sanlock gives up after {fail} s",
        fail - budget
    );
    let why_alone = format!(
        "sanlock gives up after {fail} s; I/O that hangs for longer keeps programs from being killed in time"
    );
    let why = if multipath { &why_path } else { &why_alone };
    if let Some(session) = part("session") {
        let tmo = root.text(&format!("/sys/class/iscsi_session/{session}/recovery_tmo"));
        // Below zero, as newer kernels say "off", it waits for ever.
        let waits = tmo.and_then(|text| match text.parse::<i64>() {
            Ok(seconds) => u64::try_from(seconds).map_or(Some(None), |seconds| Some(Some(seconds))),
            Err(_) => (text == "off").then_some(None),
        });
        if let Some(tmo) = waits.filter(|tmo| tmo.is_none_or(|seconds| seconds >= budget)) {
            let how_long = tmo.map_or("for ever".to_owned(), |seconds| format!("{seconds} s"));
            found.warning(
                "iscsi-timeout",
                format!("iSCSI {session} of {name} waits {how_long} for a lost connection (recovery_tmo)"),
                why,
                "set node.session.timeo.replacement_timeout in iscsid.conf, and with iscsiadm for existing nodes: 5 with multipath, below half of that time without",
            );
        }
    }
    if let Some(port) = part("rport-") {
        let file = |file: &str| root.text(&format!("/sys/class/fc_remote_ports/{port}/{file}"));
        let fast = file("fast_io_fail_tmo").filter(|text| text != "off");
        let (what, seconds) = match &fast {
            Some(text) => ("fast_io_fail_tmo", text.parse().ok()),
            None => ("dev_loss_tmo", file("dev_loss_tmo").and_then(|text| text.parse::<u64>().ok())),
        };
        if let Some(seconds) = seconds.filter(|seconds| *seconds >= budget) {
            found.warning(
                "fc-timeout",
                format!("remote port {port} of {name} lets I/O hang {seconds} s ({what})"),
                why,
                "set fast_io_fail_tmo 5 in multipath.conf",
            );
        }
    }
    let timeout = root.number(&class(name, "device/timeout"));
    if let Some(timeout) = timeout.filter(|timeout| *timeout >= fail) {
        let why_path = format!("{found_late}; sanlock gives up after {fail} s");
        found.warning(
            "command-timeout",
            format!("a SCSI command on {name} may take {timeout} s before it is given up (device/timeout)"),
            if multipath { &why_path } else { why },
            "lower /sys/block/NAME/device/timeout, by a udev rule; 30 is the default",
        );
    }
}
