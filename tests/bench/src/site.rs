//! One program's part of the device: its hosts, its lockspaces and its leases.

use std::time::Duration;

use sanlock_conformance::raw::{cmd, flag};
use sanlock_conformance::{Connection, Host, Lockspace, Program, Resource};

use crate::place::Place;

/// What the daemons are started with: memory is locked, as it is where nothing is said.
pub const OPTIONS: [&str; 2] = ["-l", "1"];

/// Longest wait for one reply.
const REPLY_LIMIT: Duration = Duration::from_secs(120);

/// One program's part of the device. Dropping it kills the daemons; the thread that made it must do that.
#[derive(Debug)]
pub struct Site {
    /// Whose it is.
    pub program: Program,
    /// Host n of the list has host id n + 1.
    pub hosts: Vec<Host>,
    path: String,
    align: u64,
    first_area: u64,
}

impl Site {
    /// Starts `hosts` daemons that use the areas from `first_area` on.
    #[must_use]
    pub fn start(program: Program, place: &Place, first_area: u64, hosts: usize) -> Self {
        let host = |n| Host::start_with(program, program, &format!("{}{n}", program.word()), &OPTIONS);
        let hosts = (1..=hosts).map(host).collect();
        Self { program, hosts, path: place.path().to_owned(), align: place.align(), first_area }
    }

    /// Both programs on one device, the original first, each with `areas` areas and `hosts` daemons. The areas behind theirs,
    /// from `2 * areas` on, are free.
    #[must_use]
    pub fn both(place: &Place, areas: u64, hosts: usize) -> [Self; 2] {
        [Self::start(Program::Reference, place, 0, hosts), Self::start(Program::Ours, place, areas, hosts)]
    }

    fn offset(&self, area: u64) -> u64 {
        (self.first_area + area) * self.align
    }

    /// The lockspace in area `area`, for host id `host_id`.
    #[must_use]
    pub fn lockspace(&self, area: u64, host_id: u64) -> Lockspace {
        Lockspace::new(&format!("BENCH{area}"), host_id, &self.path, self.offset(area))
    }

    /// The lease in area `area`, in the lockspace of area 0.
    #[must_use]
    pub fn resource(&self, area: u64) -> Resource {
        Resource::new("BENCH0", &format!("R{area}"), &self.path, self.offset(area))
    }

    /// A lease on several areas, in the lockspace of area 0, as if each were a disk of its own.
    #[must_use]
    pub fn resource_on(&self, areas: &[u64]) -> Resource {
        let mut resource = self.resource(areas[0]);
        resource.disks =
            areas.iter().map(|area| (self.path.clone().into_bytes(), self.offset(*area))).collect();
        resource.num_disks = u32::try_from(areas.len()).unwrap_or(u32::MAX);
        resource
    }

    /// The RESOURCE argument of the lease in area `area`.
    #[must_use]
    pub fn resource_arg(&self, area: u64) -> String {
        format!("BENCH0:R{area}:{}:{}", self.path, self.offset(area))
    }

    /// A connection to host `index` that waits long enough for every reply of a measure.
    #[must_use]
    pub fn connect(&self, index: usize) -> Connection {
        let mut connection = self.hosts[index].connect();
        connection.set_limit(REPLY_LIMIT);
        connection
    }

    /// The same, registered for this process.
    #[must_use]
    pub fn registered(&self, index: usize) -> Connection {
        let mut connection = self.connect(index);
        connection.register();
        connection
    }

    /// Writes the lockspaces of these areas.
    ///
    /// # Panics
    /// When one is refused.
    pub fn format_lockspaces(&self, areas: impl IntoIterator<Item = u64>, io_timeout: u32) {
        let mut connection = self.connect(0);
        for area in areas {
            let lockspace = self.lockspace(area, 0).encode();
            let reply = connection.request(cmd::WRITE_LOCKSPACE, 0, 0, io_timeout, &lockspace);
            assert_eq!(reply.result(), 0, "{}: writing lockspace {area}", self.program.word());
        }
    }

    /// Writes a lease for `num_hosts` hosts (0: as many as there is room for).
    ///
    /// # Panics
    /// When it is refused.
    pub fn format(&self, resource: &Resource, num_hosts: u32) {
        let reply = self.connect(0).request(cmd::WRITE_RESOURCE, 0, num_hosts, 0, &resource.encode());
        assert_eq!(reply.result(), 0, "{}: writing a lease", self.program.word());
    }

    /// Begins to join the lockspace of area `area` with every host; [`Self::wait_joined`] waits for the end.
    ///
    /// # Panics
    /// When a join is refused at once.
    pub fn begin_join(&self, area: u64, io_timeout: u32) {
        for (index, host_id) in (0..self.hosts.len()).zip(1..) {
            let lockspace = self.lockspace(area, host_id);
            let added = self.connect(index).add_lockspace(&lockspace, flag::ADD_ASYNC, io_timeout);
            assert_eq!(added, 0, "{}: joining with host id {host_id}", self.program.word());
        }
    }

    /// Waits until every host has joined the lockspace of area `area`.
    ///
    /// # Panics
    /// When one has not.
    pub fn wait_joined(&self, area: u64) {
        for (index, host_id) in (0..self.hosts.len()).zip(1..) {
            let lockspace = self.lockspace(area, host_id);
            let joined = self.connect(index).inq_lockspace(&lockspace, flag::INQ_WAIT);
            assert_eq!(joined, 0, "{}: host id {host_id} has not joined", self.program.word());
        }
    }
}

/// Formats the lockspace of area 0 and joins it with every host of both programs side by side.
pub fn join_all(sites: &[Site; 2], io_timeout: u32) {
    for site in sites {
        site.format_lockspaces([0], io_timeout);
        site.begin_join(0, io_timeout);
    }
    for site in sites {
        site.wait_joined(0);
    }
}
