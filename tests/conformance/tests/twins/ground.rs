//! The scratch storage of a run: what lies where, on both hosts alike.

use crate::request::Where;

/// Bytes of an area.
pub(crate) const AREA: u64 = 1 << 20;
/// Areas of the file `leases`.
pub(crate) const AREAS: u64 = 24;
/// Areas of the files `more` and `large`.
pub(crate) const MORE_AREAS: u64 = 2;

/// The joined lockspace.
pub(crate) const FIRST: &str = "LS";
/// One that is joined and left in the course of a run.
pub(crate) const SECOND: &str = "LS2";
/// The same with sectors of 4096 bytes in areas of 1 MiB.
pub(crate) const THIRD: &str = "LS3";
/// Name and place of each lockspace.
pub(crate) const SPACES: [(&str, (Where, u64)); 3] =
    [(FIRST, (Where::Leases, 0)), (SECOND, (Where::Leases, 16 * AREA)), (THIRD, (Where::Large, 0))];

/// Area of the lease on two disks, on the first of them.
pub(crate) const TWO: u64 = 23;

/// A name of 48 bytes, which leaves no room for a NUL.
pub(crate) const FULL_NAME: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFGHIJKLMNOPQRSTUV";

/// Nothing is ever written there.
pub(crate) const BLANK: u64 = 9;
/// An index of four resources, those of the areas behind its lease.
pub(crate) const INDEX: u64 = 10;
pub(crate) const ENTRIES: std::ops::Range<u64> = 12..16;
/// Its resources' names.
pub(crate) const ENTRY_NAMES: [&str; 6] = ["E1", "E2", "E3", "E4", "E5", "E6"];

/// What may be done with a lease. Requests for one that was ever taken shared can make the original kill itself (socket-protocol.md
/// 15, 19), so the two things are done to different leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// Shared, converted, renamed.
    Shared,
    /// Requested, renamed.
    Requested,
    /// Formatted anew.
    Formatted,
    /// Only read: it has other sizes than its lockspace (W44).
    Odd,
    /// Two disks.
    Two,
}

impl Place {
    /// Where it lies.
    pub(crate) fn disks(&self) -> Vec<(Where, u64)> {
        let file = if self.lockspace == THIRD { Where::Large } else { Where::Leases };
        let mut disks = vec![(file, self.area * AREA)];
        if self.class == Class::Two {
            disks.push((Where::More, 0));
        }
        disks
    }
}

/// A lease of the ground.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) lockspace: &'static str,
    pub(crate) name: &'static str,
    pub(crate) area: u64,
    pub(crate) class: Class,
}

const fn place(lockspace: &'static str, name: &'static str, area: u64, class: Class) -> Place {
    Place { lockspace, name, area, class }
}

pub(crate) const PLACES: [Place; 14] = [
    place(FIRST, "R1", 1, Class::Shared),
    place(FIRST, "R2", 2, Class::Shared),
    place(FIRST, "R3", 3, Class::Shared),
    place(FIRST, "R4", 4, Class::Shared),
    place(FIRST, "R5", 5, Class::Requested),
    place(FIRST, "R6", 6, Class::Requested),
    place(FIRST, "ELSE", 7, Class::Formatted),
    place("OTHER", "R8", 8, Class::Formatted),
    place(SECOND, "S1", 17, Class::Shared),
    place(SECOND, "S2", 18, Class::Shared),
    place(THIRD, "T1", 1, Class::Shared),
    place(FIRST, "X1", 21, Class::Formatted),
    place(FIRST, "X2", 22, Class::Odd),
    place(FIRST, "D1", TWO, Class::Two),
];

/// New names of leases, by class.
pub(crate) fn other_names(class: Class) -> &'static [&'static str] {
    match class {
        Class::Shared => &["R1", "R2", "R3", "R4", "N1", "N2", FULL_NAME],
        Class::Requested => &["R5", "R6", "Q1", "Q2"],
        Class::Formatted | Class::Odd | Class::Two => &[],
    }
}

/// The class of a lease by its name, which may be a new one.
pub(crate) fn class_of(name: &str) -> Option<Class> {
    let place = PLACES.iter().find(|place| place.name == name).map(|place| place.class);
    place.or_else(|| {
        [Class::Shared, Class::Requested].into_iter().find(|class| other_names(*class).contains(&name))
    })
}
