//! The usual scene: storage, and one or more hosts in one lockspace.

use std::time::{Duration, Instant};

use crate::bounded;
use crate::dead_owner::registered;
use crate::host::Host;
use crate::program::Program;
use crate::raw::Connection;
use crate::storage::{LOCKSPACE, Storage};

/// Hosts appear in each other's tables within this time (io timeout 1).
const SEEN_LIMIT: Duration = Duration::from_secs(60);

/// Hosts that joined one lockspace; host n of the list has host id n + 1.
#[derive(Debug)]
pub struct Scene {
    // Hosts are dropped first: they use the storage.
    hosts: Vec<Host>,
    storage: Storage,
}

impl Scene {
    /// One host, joined to a lockspace on a regular file, with leases for `resources` resources.
    ///
    /// # Panics
    /// When any step fails.
    #[must_use]
    pub fn one_host(program: Program, resources: u64) -> Self {
        Self::joined(Storage::file(), &[program], resources)
    }

    /// Two hosts of one program on a regular file.
    ///
    /// # Panics
    /// When any step fails.
    #[must_use]
    pub fn two_hosts(program: Program, resources: u64) -> Self {
        Self::joined(Storage::file(), &[program, program], resources)
    }

    /// One host that has joined nothing, with an initialised lockspace and leases.
    ///
    /// # Panics
    /// When any step fails.
    #[must_use]
    pub fn not_joined(program: Program, resources: u64) -> Self {
        let storage = Storage::file();
        let host = Host::start(program, "host1");
        host.init(&storage, resources);
        Self { hosts: vec![host], storage }
    }

    /// Hosts of the given programs, named `host1`, `host2`, …; the first one initialises the
    /// storage, then all join at once.
    ///
    /// # Panics
    /// When any step fails.
    #[must_use]
    pub fn joined(storage: Storage, programs: &[Program], resources: u64) -> Self {
        let hosts: Vec<Host> = programs
            .iter()
            .enumerate()
            .map(|(index, program)| Host::start(*program, &format!("host{}", index + 1)))
            .collect();
        hosts[0].init(&storage, resources);
        let scene = Self { hosts, storage };
        scene.join_all();
        scene
    }

    /// Hosts whose daemons are `program` and whose command line is `cli`, joined on `storage`.
    ///
    /// # Panics
    /// When any step fails.
    #[must_use]
    pub fn asked_by(storage: Storage, program: Program, cli: Program, hosts: u64, resources: u64) -> Self {
        let hosts: Vec<Host> =
            (1..=hosts).map(|n| Host::start_with(program, cli, &format!("host{n}"), &[])).collect();
        hosts[0].init(&storage, resources);
        let scene = Self { hosts, storage };
        scene.join_all();
        scene
    }

    fn join_all(&self) {
        let lockspaces: Vec<_> =
            (1u64..).zip(&self.hosts).map(|(id, _)| self.storage.lockspace_arg(id)).collect();
        let commands = lockspaces.iter().map(|arg| ["client", "add_lockspace", "-s", arg, "-o", "1"]);
        let mut joins: Vec<_> = self
            .hosts
            .iter()
            .zip(commands)
            .map(|(host, command)| (host, command, host.client_in_background(&command)))
            .collect();
        for (host, command, join) in &mut joins {
            let joined = join.finish(Duration::from_secs(60));
            let _ = host.in_time(joined, command).success();
        }
    }

    /// The storage.
    #[must_use]
    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    /// Host with list index `index` (host id `index + 1`).
    #[must_use]
    pub fn host(&self, index: usize) -> &Host {
        &self.hosts[index]
    }

    /// A connection to the host with this list index that is registered for this process and has acquired resource `n`.
    ///
    /// # Panics
    /// When the resource is not to be had.
    #[must_use]
    pub fn owning(&self, index: usize, n: u64) -> Connection {
        let mut connection = registered(self.host(index));
        assert_eq!(connection.acquire_one(&self.storage.resource(n)), 0, "acquiring resource {n}");
        connection
    }

    /// Host with list index `index`, to kill or restart it.
    pub fn host_mut(&mut self, index: usize) -> &mut Host {
        &mut self.hosts[index]
    }

    /// The hosts.
    #[must_use]
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// Waits until every host has every host in its table as live.
    ///
    /// # Panics
    /// When that does not happen in time.
    pub fn wait_until_all_see_all(&self) {
        for host in &self.hosts {
            bounded::wait_until("all hosts to be seen live", SEEN_LIMIT, || {
                let (result, entries) = host.connect().get_hosts(LOCKSPACE, 0);
                result == 0
                    && entries.iter().filter(|entry| entry.flags & 0xf == 3).count() == self.hosts.len()
            });
        }
    }

    /// The lease version of resource `n` on disk, as host 1 reads it.
    ///
    /// # Panics
    /// When it cannot be read.
    #[must_use]
    pub fn lver(&self, n: u64) -> u64 {
        let (result, resource) = self.hosts[0].connect().read_resource(&self.storage.resource(n));
        assert_eq!(result, 0, "reading resource {n}");
        resource.lver
    }

    /// The owner of resource `n` on disk as (host id, generation), `None` when free.
    ///
    /// # Panics
    /// When it cannot be read.
    #[must_use]
    pub fn owner(&self, n: u64) -> Option<(u64, u64)> {
        let (result, _, owners) = self.hosts[0].connect().read_resource_owners(&self.storage.resource(n));
        assert_eq!(result, 0, "reading the owners of resource {n}");
        owners.first().map(|owner| (owner.host_id, owner.generation))
    }

    /// Waits until resource `n` is free on disk.
    ///
    /// # Panics
    /// After `limit`.
    pub fn wait_until_free(&self, n: u64, limit: Duration) {
        bounded::wait_until(&format!("resource {n} to be free"), limit, || self.owner(n).is_none());
    }
}

/// Waits until `host` is granted resource `n`, asking again after each refusal that a hand-over
/// may cause, and returns how long it took. The lease is held by the returned connection.
///
/// # Panics
/// After `limit`, or on any other refusal.
#[must_use]
pub fn acquire_soon(
    host: &Host,
    storage: &Storage,
    n: u64,
    limit: Duration,
) -> (crate::Connection, Duration) {
    let begin = Instant::now();
    let mut connection = host.connect();
    connection.register();
    bounded::wait_until(&format!("host {} to be granted resource {n}", host.name()), limit, || {
        match connection.acquire_one(&storage.resource(n)) {
            0 => true,
            // Held on this host or another, being released, lost the race.
            -17 | -11 | -16 | -243 | -244 | -245 => false,
            other => panic!("acquire on host {} gave {other}", host.name()),
        }
    });
    (connection, begin.elapsed())
}

/// Plays a case with every pair of programs side by side: both hosts under test, and each way mixed. Each pair has a scene of its
/// own with this many resources, in which everybody has seen everybody.
///
/// # Panics
/// When a case does.
pub fn every_pair(resources: u64, case: impl Fn(&Scene) + Send + Sync + Clone + 'static) {
    let mut pairs = Vec::new();
    if let Some(program) = Program::under_test() {
        pairs.push([program, program]);
    }
    if Program::both_available() {
        pairs.push([Program::Ours, Program::Reference]);
        pairs.push([Program::Reference, Program::Ours]);
    }
    let parts = pairs.into_iter().map(|programs| {
        let case = case.clone();
        let name = format!("host 1 {}, host 2 {}", programs[0].word(), programs[1].word());
        let part: Box<dyn FnOnce() + Send> = Box::new(move || {
            let scene = Scene::joined(Storage::file(), &programs, resources);
            scene.wait_until_all_see_all();
            case(&scene);
        });
        (name, part)
    });
    bounded::side_by_side(parts.collect());
}
