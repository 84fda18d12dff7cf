//! What a daemon is killed in.

use super::IO_TIMEOUT;
use super::host::{Holder, Host, both, direct, sanlock, scene, until};
use sanlock_client::wire::flags::{AcquireFlags, ConvertFlags, ReleaseFlags, ResourceFlags};
use sanlock_client::wire::{Disk, Name, Resource, ResourceSpec};
use sanlock_lease::limits::LVB_SECTOR;
use sanlock_served::{ServedFile, Trouble};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const MIB: u64 = 1 << 20;
/// Where the areas are.
const LOCKSPACE: Range<u64> = 0..MIB;
const RESOURCE: Range<u64> = MIB..2 * MIB;
const INDEX: Range<u64> = 4 * MIB..12 * MIB;
/// What a process sets as the value of the lease; before there were zeros.
const VALUE: u8 = 7;

/// Two hosts and a disk.
pub(crate) struct Scene {
    /// The host whose daemon is killed.
    pub(crate) first: Host,
    /// The one that goes on.
    pub(crate) second: Host,
    /// What the first host has for the disk, if its writes can be stopped at; the second one has its own, so that both go through the page cache.
    pub(crate) served: Option<ServedFile>,
    _second: Option<ServedFile>,
    /// The disk, as the first and as the second host see it.
    disks: [PathBuf; 2],
}

/// Something that the daemon of the first host does.
pub(crate) struct Operation {
    pub(crate) name: &'static str,
    /// Whether that host is in the lockspace before.
    pub(crate) joined: bool,
    /// And whether it is after it.
    pub(crate) stays: bool,
    /// What has to be on the disk besides the lockspace and the resources, before anybody joins.
    pub(crate) format: fn(&Scene),
    /// What has to have happened, with the process that holds a lease meanwhile.
    pub(crate) prepare: fn(&Scene) -> Option<Holder>,
    /// The operation, for the process with this pid; it may fail.
    pub(crate) act: fn(&Scene, i32),
    /// Where it writes.
    pub(crate) writes_to: Range<u64>,
    /// How often; `None` where a renewal may come in between.
    pub(crate) writes: Option<u32>,
    /// At which of them it is killed unless all are asked for; one more than there are: after the last one.
    pub(crate) points: &'static [u32],
    /// At which calls it is killed unless all are asked for.
    pub(crate) calls: &'static [u32],
    /// Whether what is left is as it has to be.
    pub(crate) look: fn(&Scene, &str),
    /// After everybody had the lease: whether the operation can be done again, and leads to what it leads to.
    pub(crate) again: fn(&Scene, &str),
}

impl Scene {
    /// `served`: with disks at whose writes the first host can be stopped.
    pub(crate) fn new(dir: &Path, served: bool) -> Self {
        scene(dir);
        let disk = dir.join("disk");
        let serve = || served.then(|| ServedFile::over(&disk, dir, Trouble::default()).unwrap());
        let both = [serve(), serve()];
        let disks = both.each_ref().map(|served| served.as_ref().map_or(&*disk, ServedFile::path).to_owned());
        let [served, _second] = both;
        Self { served, _second, disks, first: Host::start(dir, "first"), second: Host::start(dir, "second") }
    }

    /// The disk as the host with this id sees it; 0 is for the tools.
    fn disk(&self, id: u64) -> String {
        self.disks[usize::from(id != 1)].to_str().unwrap().to_owned()
    }

    /// The lockspace with a host id.
    pub(crate) fn lockspace(&self, id: u64) -> String {
        format!("LS:{id}:{}:0", self.disk(id))
    }

    /// The host with this id joins; a busy machine may take longer than the io timeout allows.
    pub(crate) fn join(&self, id: u64) {
        let host = if id == 1 { &self.first } else { &self.second };
        let lockspace = self.lockspace(id);
        let joins = ["client", "add_lockspace", "-s", &lockspace, "-o", IO_TIMEOUT];
        until(&format!("host {id} to join"), || host.client(&joins).output().unwrap().status.success());
    }

    /// A command with which a host takes the lease for a program that ends at once, under the name that it has on disk.
    pub(crate) fn takes(&self, id: u64) -> [String; 6] {
        let resource = self.lease(self.name_on_disk(), 1, id);
        ["client", "command", "-r", &resource, "-c", "/bin/true"].map(str::to_owned)
    }

    fn lease(&self, name: &str, mib: u32, id: u64) -> String {
        format!("LS:{name}:{}:{mib}M", self.disk(id))
    }

    fn index(&self, id: u64) -> String {
        format!("LS:{}:4M", self.disk(id))
    }

    /// The name that the lease has on disk.
    fn name_on_disk(&self) -> &'static str {
        let is_there = |name: &&str| direct(&["read_leader", "-r", &self.lease(name, 1, 0)]).status.success();
        ["R", "RENAMED"].into_iter().find(is_there).unwrap_or("R")
    }

    /// The lease under that name.
    pub(crate) fn resource_on_disk(&self) -> String {
        self.lease(self.name_on_disk(), 1, 0)
    }

    /// With which the host with this id joined last.
    pub(crate) fn generation(&self, id: u64) -> u64 {
        self.in_record_of(id, "owner_generation ")
    }

    /// The second of its clock in which it renewed last, as it is on the disk.
    pub(crate) fn last_renewal(&self, id: u64) -> u64 {
        self.in_record_of(id, "timestamp ")
    }

    /// A number in the record of a host id.
    fn in_record_of(&self, id: u64, field: &str) -> u64 {
        let output = both(&direct(&["read_leader", "-s", &self.lockspace(id)]));
        let number = output.lines().find_map(|line| line.strip_prefix(field));
        number.unwrap_or_else(|| panic!("{output}")).parse().unwrap()
    }

    /// Whether the image says that the first host owns the lease alone.
    pub(crate) fn is_owned_by_the_first(&self) -> bool {
        let leader = both(&direct(&["read_leader", "-r", &self.resource_on_disk()]));
        leader.contains("\nowner_id 1\n") && !leader.contains("\ntimestamp 0\n")
    }

    /// What a process of the second host hears that does not want to wait for an owner; 0 if it gets the lease. An I/O that a busy machine
    /// delayed says nothing.
    pub(crate) fn takes_without_waiting(&self) -> i32 {
        const DELAYED: i32 = -202;
        let process = self.second.process();
        let disk = Disk::new(self.disk(2), MIB).unwrap();
        let spec = ResourceSpec::new(resource(self.name_on_disk()), vec![disk]).unwrap();
        let (flags, library) = (AcquireFlags::OWNER_NOWAIT, self.second.library());
        let mut code = DELAYED;
        until("an answer about a lease", || {
            let taken = library.acquire(process.pid(), flags, std::slice::from_ref(&spec), None);
            code = taken.map_or_else(|error| error.result_code(), |()| 0);
            code != DELAYED
        });
        code
    }

    fn is_free(&self) -> bool {
        let leader = both(&direct(&["read_leader", "-r", &self.resource_on_disk()]));
        leader.contains("\ntimestamp 0\n")
    }

    fn value(&self) -> Vec<u8> {
        let disk = std::fs::File::open(self.disk(0)).unwrap();
        let mut value = vec![0; 512];
        disk.read_exact_at(&mut value, MIB + LVB_SECTOR * 512).unwrap();
        value
    }

    /// The processes of the first host with this pid change the mode of their lease, or are cut short.
    fn converts(&self, pid: i32, flags: ResourceFlags) {
        let resource = Resource { flags: flags.bits().into(), ..resource("R") };
        let _cut_short = self.first.library().convert(pid, ConvertFlags::empty(), resource);
    }

    fn releases(&self, pid: i32, flags: ReleaseFlags, resources: &[Resource]) {
        let _cut_short = self.first.library().release(pid, flags, resources);
    }

    /// The first host's daemon takes the lease for a program that ends at once.
    fn takes_and_releases(&self, mode: &str) {
        let resource = self.lease("R", 1, 1) + mode;
        let takes = ["client", "command", "-r", &resource, "-c", "/bin/true"];
        let _cut_short = self.first.client(&takes).output().unwrap();
    }

    /// A command on the index, by the daemon of the host with this id; what it prints.
    fn indexes(&self, id: u64, action: &str, args: &[&str]) -> String {
        let (index, host) = (self.index(id), if id == 1 { &self.first } else { &self.second });
        both(&host.client(&[&["client", action, "-x", &index], args].concat()).output().unwrap())
    }

    /// The same by the other host, to whom the first attempt may tell that the index's own lease was just decided to be the dead host's.
    fn indexes_again(&self, action: &str, args: &[&str]) -> String {
        let done = self.indexes(2, action, args);
        if done.contains(" done -245\n") { self.indexes(2, action, args) } else { done }
    }

    #[track_caller]
    fn direct(&self, args: &[&str]) {
        let output = direct(args);
        assert!(output.status.success(), "{args:?}: {}", both(&output));
    }

    /// An index with the leases A and B.
    fn with_index(&self) {
        let index = self.index(0);
        self.direct(&["format", "-x", &index]);
        for (name, mib) in [("A", 6), ("B", 7)] {
            self.direct(&["init", "-r", &self.lease(name, mib, 0), "-n", "8"]);
            self.direct(&["update", "-x", &index, "-e", &format!("{name}:{mib}M")]);
        }
    }

    /// And with a lease C that has lost its entry.
    fn with_index_and_more(&self) {
        self.with_index();
        self.direct(&["init", "-r", &self.lease("C", 8, 0), "-n", "8"]);
    }

    fn is_entered(&self, entry: &str) -> bool {
        direct(&["lookup", "-x", &self.index(0), "-e", entry]).status.success()
    }

    /// The first entry is what it was, and every entry names the lease in its area. Behind the entries there may be a lease that has none, or
    /// one whose format was interrupted: the next create formats its place.
    fn is_sound(&self, what: &str) {
        assert!(self.is_entered("A:6M"), "{what}: an entry is lost");
        let disk = format!("{}:4M", self.disk(0));
        let found = both(&sanlock(&["fsck", &disk]));
        let mut damages = found.lines().filter_map(|line| line.strip_prefix("DAMAGE ")?.split(':').next());
        let harmless = |damage| ["entry-missing", "leader-magic"].contains(&damage);
        assert!(damages.all(harmless), "{what}: {found}");
    }
}

fn name(name: &str) -> Name {
    Name::new(name).unwrap()
}

fn resource(of: &str) -> Resource {
    Resource::new(name("LS"), name(of))
}

fn nothing(_: &Scene) {}

fn nobody(_: &Scene) -> Option<Holder> {
    None
}

fn well(_: &Scene, _: &str) {}

fn holds_exclusively(scene: &Scene) -> Option<Holder> {
    Some(scene.first.holder(&scene.lease("R", 1, 1)))
}

fn holds_shared(scene: &Scene) -> Option<Holder> {
    Some(scene.first.holder(&format!("{}:SH", scene.lease("R", 1, 1))))
}

/// Holds the lease with a value that is to be written when it is given up.
fn holds_with_value(scene: &Scene) -> Option<Holder> {
    let holder = scene.first.holder(&scene.lease("D", 2, 1));
    let disk = Disk::new(scene.disk(1), MIB).unwrap();
    let spec = ResourceSpec::new(resource("R"), vec![disk]).unwrap();
    let library = scene.first.library();
    library.acquire(holder.pid(), AcquireFlags::LVB, &[spec], None).unwrap();
    library.set_lvb(resource("R"), &[VALUE; 512]).unwrap();
    Some(holder)
}

/// Who finds the lease given up finds the value that was set.
fn value_is_whole(scene: &Scene, what: &str) {
    let value = scene.value();
    let whole = [[0; 512], [VALUE; 512]].contains(value.as_slice().try_into().unwrap());
    assert!(whole, "VALUE TORN: {what}: neither value");
    assert!(!scene.is_free() || value == [VALUE; 512], "VALUE LOST: {what}: given up without it");
}

/// Everything that a daemon writes for.
pub(crate) const OPERATIONS: &[Operation] = &[
    Operation {
        name: "take and release",
        act: |s, _| s.takes_and_releases(""),
        writes: Some(5),
        calls: &[2, 3, 4, 5, 6, 7, 9],
        points: &[2, 3, 4, 6],
        ..ON_LEASE
    },
    Operation {
        name: "take and release shared",
        act: |s, _| s.takes_and_releases(":SH"),
        writes: Some(6),
        calls: &[5, 7, 8],
        points: &[2, 4, 5, 6],
        ..ON_LEASE
    },
    Operation {
        name: "convert to exclusive",
        prepare: holds_shared,
        act: |s, pid| s.converts(pid, ResourceFlags::empty()),
        writes: Some(4),
        calls: &[3],
        points: &[2, 3, 4],
        ..ON_LEASE
    },
    Operation {
        name: "convert to shared",
        prepare: holds_exclusively,
        act: |s, pid| s.converts(pid, ResourceFlags::SHARED),
        writes: Some(3),
        calls: &[2],
        points: &[1, 2, 3],
        ..ON_LEASE
    },
    Operation {
        name: "release with a value",
        prepare: holds_with_value,
        act: |s, pid| s.releases(pid, ReleaseFlags::empty(), &[resource("R")]),
        writes: Some(3),
        look: value_is_whole,
        calls: &[2],
        points: &[1, 2, 3],
        ..ON_LEASE
    },
    Operation {
        name: "release with a rename",
        prepare: holds_exclusively,
        act: |s, pid| s.releases(pid, ReleaseFlags::RENAME, &[resource("R"), resource("RENAMED")]),
        writes: Some(2),
        calls: &[2],
        points: &[1, 2],
        ..ON_LEASE
    },
    Operation { name: "renew", points: &[1], ..ON_LOCKSPACE },
    Operation {
        name: "join",
        joined: false,
        calls: &[3],
        act: |s, _| {
            let lockspace = s.lockspace(1);
            let joins = ["client", "add_lockspace", "-s", &lockspace, "-o", IO_TIMEOUT];
            let _cut_short = s.first.client(&joins).output();
        },
        ..ON_LOCKSPACE
    },
    Operation {
        name: "leave",
        stays: false,
        act: |s, _| {
            let _cut_short = s.first.client(&["client", "rem_lockspace", "-s", &s.lockspace(1)]).output();
        },
        points: &[1],
        ..ON_LOCKSPACE
    },
    Operation {
        name: "format an index",
        format: nothing,
        act: |s, _| {
            s.indexes(1, "format", &[]);
        },
        look: well,
        again: |s, what| {
            for (action, args) in [("format", &[][..]), ("create", &["-e", "A"]), ("lookup", &["-e", "A:6M"])]
            {
                let done = s.indexes_again(action, args);
                assert!(done.contains(" done 0\n"), "{what}: {done}");
            }
        },
        points: &[2, 4, 6],
        ..ON_INDEX
    },
    Operation {
        name: "create",
        act: |s, _| {
            s.indexes(1, "create", &["-e", "NEW"]);
        },
        writes: Some(9),
        again: |s, what| {
            let done = s.indexes_again("create", &["-e", "NEW"]);
            assert!(done.contains(" done 0\n") || done.contains(" done -17\n"), "{what}: {done}");
            assert!(s.is_entered("NEW") && s.is_entered("B:7M"), "{what}: {done}");
            s.is_sound(what);
        },
        calls: &[5],
        points: &[4, 5, 6, 7, 8],
        ..ON_INDEX
    },
    Operation {
        name: "delete",
        act: |s, _| {
            s.indexes(1, "delete", &["-e", "B"]);
        },
        writes: Some(8),
        again: |s, what| {
            let done = s.indexes_again("delete", &["-e", "B"]);
            assert!(done.contains(" done 0\n") || done.contains(" done -2\n"), "{what}: {done}");
            assert!(!s.is_entered("B"), "{what}: {done}");
            s.is_sound(what);
        },
        calls: &[4],
        points: &[4, 5, 6],
        ..ON_INDEX
    },
    Operation {
        name: "update",
        format: Scene::with_index_and_more,
        act: |s, _| {
            s.indexes(1, "update", &["-e", "C:8M"]);
        },
        again: |s, what| {
            let done = s.indexes_again("update", &["-e", "C:8M"]);
            assert!(s.is_entered("C:8M") && s.is_entered("B:7M"), "{what}: {done}");
            s.is_sound(what);
        },
        calls: &[3],
        points: &[4, 5],
        ..ON_INDEX
    },
    Operation {
        name: "rebuild",
        format: Scene::with_index_and_more,
        act: |s, _| {
            s.indexes(1, "rebuild", &[]);
        },
        again: |s, what| {
            let done = s.indexes_again("rebuild", &[]);
            assert!(done.contains(" done 0\n"), "{what}: {done}");
            assert!(s.is_entered("C:8M") && s.is_entered("B:7M"), "{what}: {done}");
            s.is_sound(what);
        },
        calls: &[4],
        points: &[4, 5],
        ..ON_INDEX
    },
];

/// Nothing is to be had before, and nothing else to be said after.
const ON_LEASE: Operation = Operation {
    name: "",
    joined: true,
    stays: true,
    format: nothing,
    prepare: nobody,
    act: |_, _| (),
    writes_to: RESOURCE,
    writes: None,
    points: &[1, 2, 3],
    calls: &[],
    look: well,
    again: well,
};

/// A host goes on renewing until it is killed.
const ON_LOCKSPACE: Operation = Operation { writes_to: LOCKSPACE, writes: None, points: &[1, 2], ..ON_LEASE };

/// The internal lease is taken and given back around the change.
const ON_INDEX: Operation = Operation {
    format: Scene::with_index,
    writes_to: INDEX,
    writes: Some(6),
    points: &[1, 4, 6],
    look: Scene::is_sound,
    ..ON_LEASE
};
