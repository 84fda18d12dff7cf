//! What the run fights for: two lockspaces with sectors of 512 and 4096 bytes, and the resources in them.
//!
//! The original refuses a resource whose sizes are not those of its lockspace (W44), so there is a lockspace for each.

use std::path::{Path, PathBuf};

use crate::program::Program;
use crate::raw::{Lockspace, Resource};
use crate::storage::{sparse_file, text};

/// Seconds. With 1 a host that gets no processor for some seconds loses its lockspace.
pub const IO_TIMEOUT: u32 = 2;

/// What a resource is used for. What one use would spoil for another, or what the original must be spared, has resources of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Taken shared by several processes of a host; on hosts of the original never converted to exclusive, because that would be
    /// granted beside the others (CE5).
    Shared,
    /// Converted both ways; on a host of the original one process at a time shares it (CE5).
    Converted,
    /// The same, with a value in its lock value block.
    Valued,
    /// Others ask for it, so that its holder is killed. Never shared: such a request makes the original kill its own daemon (W42).
    Asked,
    /// Persistent: outlives its holder as an orphan.
    Kept,
    /// Changes its name when it is released. Only for one process a host, which is never killed: a daemon knows a lease by its name, so
    /// two names are two leases for it, which would share one block.
    Renamed,
}

/// One resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spot {
    /// Index into [`LOCKSPACES`].
    pub lockspace: usize,
    /// Its area on the lockspace's disk.
    pub area: u64,
    /// What it is called at first.
    pub name: &'static str,
    /// What it is used for.
    pub class: Class,
}

/// Another name for the resource that changes its name.
pub const OTHER_NAME: &str = "renamed2";

/// Name, file, bytes per sector, MiB per area.
pub const LOCKSPACES: [(&str, &str, u32, u64); 2] =
    [("LS", "leases-512", 512, 1), ("LB", "leases-4096", 4096, 8)];

/// All resources.
pub const SPOTS: [Spot; 8] = [
    spot(0, 1, "converted", Class::Converted),
    spot(0, 2, "shared", Class::Shared),
    spot(0, 3, "valued", Class::Valued),
    spot(0, 4, "asked", Class::Asked),
    spot(0, 5, "kept", Class::Kept),
    spot(0, 6, "renamed", Class::Renamed),
    spot(1, 1, "bigshared", Class::Shared),
    spot(1, 2, "bigvalued", Class::Valued),
];

const fn spot(lockspace: usize, area: u64, name: &'static str, class: Class) -> Spot {
    Spot { lockspace, area, name, class }
}

impl Spot {
    /// Whether it can be asked for together with others.
    #[must_use]
    pub fn in_company(&self) -> bool {
        matches!(self.class, Class::Shared | Class::Converted | Class::Valued)
    }

    /// Whether it is converted on hosts of `program`.
    #[must_use]
    pub fn convertible(&self, program: Program) -> bool {
        matches!(self.class, Class::Converted | Class::Valued)
            || self.class == Class::Shared && program == Program::Ours
    }

    /// Whether only one process of a host of `program` may share it at a time.
    #[must_use]
    pub fn needs_baton(&self, program: Program) -> bool {
        program == Program::Reference && self.convertible(program)
    }

    /// Bytes per sector.
    #[must_use]
    pub fn sector_size(&self) -> usize {
        LOCKSPACES[self.lockspace].2 as usize
    }
}

/// Where all of it lies: a directory with the disks, the proof and the ledger.
#[derive(Debug, Clone)]
pub struct Site {
    dir: PathBuf,
}

impl Site {
    /// The site in `dir`.
    #[must_use]
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    /// Makes the disks.
    ///
    /// # Panics
    /// When they cannot be made.
    pub fn make_disks(&self) {
        for (_, file, _, area) in LOCKSPACES {
            sparse_file(&self.dir.join(file), (8 * area) << 20);
        }
    }

    /// The directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Path of the disk of a lockspace.
    #[must_use]
    pub fn path(&self, lockspace: usize) -> String {
        text(&self.dir.join(LOCKSPACES[lockspace].1)).to_owned()
    }

    /// LOCKSPACE argument (command-line.md 4.1).
    #[must_use]
    pub fn lockspace_arg(&self, lockspace: usize, host_id: u64) -> String {
        format!("{}:{host_id}:{}:0", LOCKSPACES[lockspace].0, self.path(lockspace))
    }

    /// RESOURCE argument (command-line.md 4.2).
    #[must_use]
    pub fn resource_arg(&self, spot: &Spot) -> String {
        let (lockspace, _, _, area) = LOCKSPACES[spot.lockspace];
        format!("{lockspace}:{}:{}:{}", spot.name, self.path(spot.lockspace), (spot.area * area) << 20)
    }

    /// A lockspace for the wire.
    #[must_use]
    pub fn lockspace(&self, lockspace: usize, host_id: u64) -> Lockspace {
        Lockspace::new(LOCKSPACES[lockspace].0, host_id, &self.path(lockspace), 0)
    }

    /// A resource for the wire, under `name`.
    #[must_use]
    pub fn resource(&self, spot: &Spot, name: &str) -> Resource {
        let (lockspace, _, _, area) = LOCKSPACES[spot.lockspace];
        Resource::new(lockspace, name, &self.path(spot.lockspace), (spot.area * area) << 20)
    }
}
