//! The steps of a run, from a seed: every command, mostly as it should be.

mod around;

use sanlock_conformance::dice::Dice;
use sanlock_conformance::raw::{SELF, cmd, flag};

use crate::ground::{
    AREA, AREAS, BLANK, Class, ENTRIES, ENTRY_NAMES, FIRST, FULL_NAME, PLACES, Place, SPACES, THIRD,
    class_of, other_names,
};
use crate::request::{Data2, Lease, Part, Request, Step, Where, Who};
use crate::side::{CLIENTS, PLAINS};

/// Bits of command flags that no command knows.
const UNKNOWN_FLAGS: u32 = 0x0f00_0000;

/// The steps of a seed, without end.
pub(crate) struct Steps {
    dice: Dice,
    /// The lockspace that is being joined, and how many more steps are about it.
    joining: Option<(Part, u64)>,
}

impl Steps {
    pub(crate) fn new(seed: u64) -> Self {
        Self { dice: Dice::new("twins", seed), joining: None }
    }

    fn number(&mut self, limit: usize) -> usize {
        usize::try_from(self.dice.below(limit as u64)).unwrap_or(0)
    }

    fn who(&mut self) -> Who {
        match self.dice.below(100) {
            0..60 => Who::Client(self.number(CLIENTS)),
            60..90 => Who::Fresh,
            _ => Who::Plain(self.number(PLAINS)),
        }
    }

    /// Mostly the connection itself.
    fn target(&mut self) -> Data2 {
        match self.dice.below(100) {
            0..65 => Data2::Number(SELF),
            65..96 => Data2::Client(self.number(CLIENTS)),
            _ => Data2::Number(self.dice.one_of(&[0, 1, SELF - 1, 0x7fff_fff0])),
        }
    }

    /// One flag in so many per cent of the cases.
    fn maybe(&mut self, percent: u64, flags: u32) -> u32 {
        if self.dice.chance(percent) { flags } else { 0 }
    }

    fn place_of(&mut self, wanted: impl Fn(&Place) -> bool) -> Place {
        loop {
            let place = self.dice.one_of(&PLACES);
            if wanted(&place) {
                return place;
            }
        }
    }

    fn lease_at(place: &Place) -> Lease {
        let disks = place.disks();
        let num_disks = u32::try_from(disks.len()).unwrap_or(0);
        let (lockspace, name) = (place.lockspace, place.name);
        Lease { lockspace, name, lver: 0, data32: 0, flags: 0, num_disks, disks }
    }

    /// A lease, in one of eight cases with something wrong about it.
    fn lease(&mut self) -> Lease {
        let first = self.dice.chance(75);
        let place = self.place_of(|place| (place.lockspace == FIRST) == first && place.class != Class::Odd);
        let mut lease = Self::lease_at(&place);
        if self.dice.chance(5) {
            lease.lockspace = FIRST;
            lease.name = self.dice.one_of(&ENTRY_NAMES);
            lease.num_disks = 1;
            lease.disks = vec![(Where::Leases, AREA * (ENTRIES.start + self.dice.below(4)))];
        }
        // Where renames have put other names.
        if self.dice.chance(10) {
            if let names @ [_, ..] = other_names(place.class) {
                lease.name = self.dice.one_of(names);
            }
        }
        if self.dice.chance(12) {
            self.twist(&mut lease);
        }
        lease
    }

    fn twist(&mut self, lease: &mut Lease) {
        match self.dice.below(12) {
            0 => lease.lockspace = self.dice.one_of(&["", "LS9", "LS2", "LS", FULL_NAME]),
            1 => lease.name = self.dice.one_of(&["", "R9", "ELSE", FULL_NAME, "rindex_lease"]),
            2 => lease.disks[0].1 = BLANK * AREA,
            3 => lease.disks[0].1 = 0,
            4 => lease.disks[0].1 += self.dice.one_of(&[512, 100, 4096]),
            5 => {
                lease.disks[0].1 =
                    self.dice.one_of(&[AREAS * AREA, AREAS * AREA - 512, 1 << 40, 1 << 63, u64::MAX]);
            }
            6 => {
                lease.disks[0].0 =
                    self.dice.one_of(&[Where::Missing, Where::Empty, Where::Directory, Where::Closed]);
            }
            7 => {
                let area = self.place_of(|place| place.class != Class::Odd).area;
                lease.disks[0].1 = area * AREA;
            }
            8 => {
                // No disks, or more than there may be; none follow, so that the original does not read them as headers.
                lease.disks.clear();
                lease.num_disks = self.dice.one_of(&[0, 5, 1000, 0x8000_0000, u32::MAX]);
            }
            9 => lease.flags |= self.dice.one_of(&[flag::SECTOR4K, flag::ALIGN8M, 0xffff_fc00, 0x310]),
            10 => lease.data32 = self.dice.one_of(&[1, 5000, u32::MAX]),
            _ => lease.lver = self.dice.one_of(&[1, 2, u64::MAX]),
        }
    }

    /// A lockspace, mostly the joined one.
    fn space(&mut self) -> Part {
        let (name, at) = if self.dice.chance(70) { SPACES[0] } else { self.dice.one_of(&SPACES) };
        let mut host_id = if self.dice.chance(85) { 1 } else { self.dice.one_of(&[0, 2, 3]) };
        let (mut name, mut at, mut flags) = (name, at, 0);
        if self.dice.chance(12) {
            match self.dice.below(6) {
                0 => name = self.dice.one_of(&["", "LS9", "LSS", FULL_NAME]),
                1 => host_id = self.dice.one_of(&[250, 251, 2000, 2001, 1 << 32]),
                2 => {
                    at.0 = self.dice.one_of(&[Where::Missing, Where::Empty, Where::Directory, Where::Closed])
                }
                3 => at.1 = self.dice.one_of(&[BLANK * AREA, AREA, 100, AREAS * AREA, 1 << 63, u64::MAX]),
                4 => at.1 += 512,
                _ => {
                    flags =
                        self.dice.one_of(&[flag::SECTOR512, flag::SECTOR4K, flag::SECTOR4K | flag::ALIGN8M])
                }
            }
        }
        Part::Lockspace { name, host_id, flags, at }
    }

    /// The next step, at times with odd numbers in its header.
    pub(crate) fn next_step(&mut self) -> Step {
        let mut step = self.plain_step();
        if let Step::Ask(_, request) = &mut step {
            if self.dice.chance(5) {
                request.odd.seq = Some(self.dice.one_of(&[1, 77, u32::MAX]));
            }
            if self.dice.chance(2) {
                request.odd.version = Some(self.dice.one_of(&[0, 2, 0xffff]));
            }
            // With a wrong number of disks nobody knows where the message ends but by its length.
            let ends = request.leases().all(|lease| lease.num_disks as usize == lease.disks.len().max(1));
            if request.takes_any_numbers() && ends && self.dice.chance(8) {
                request.odd.length = Some(self.dice.one_of(&[0, 32, 33, 0x7fff_ffff, u32::MAX]));
                request.data = self.dice.one_of(&[0, 1, SELF]);
                request.data2 = Data2::Number(self.dice.one_of(&[0, 1, SELF]));
            }
        }
        step
    }

    fn plain_step(&mut self) -> Step {
        if let Some((space, left)) = self.joining.take() {
            if left > 0 {
                self.joining = Some((space.clone(), left - 1));
                return self.about_a_join(space);
            }
        }
        let client = self.number(CLIENTS);
        match self.dice.below(1000) {
            0..90 => Step::Register(client),
            90..100 => Step::Kill(client),
            100..110 => Step::HangUp(client),
            110..290 => self.acquire(),
            290..450 => self.release(),
            450..510 => self.convert(),
            510..560 => self.value(),
            560..600 => self.ask_with_target(cmd::INQUIRE, Vec::new(), 0),
            600..650 => self.request(),
            650..680 => self.joining(),
            680..730 => self.reading(),
            730..760 => self.formatting(),
            760..850 => self.index(),
            850..900 => self.events(),
            900..940 => self.about_lockspaces(),
            _ => self.about_the_daemon(),
        }
    }

    fn ask_with_target(&mut self, cmd: u32, parts: Vec<Part>, flags: u32) -> Step {
        let data2 = self.target();
        let flags = flags | self.maybe(3, UNKNOWN_FLAGS);
        Step::Ask(self.who(), Request { flags, data2, ..Request::new(cmd, parts) })
    }

    fn acquire(&mut self) -> Step {
        // Of more than two, ours takes all but the first at once, and may have taken leases behind the one that is refused.
        let count = self.dice.one_of(&[1, 1, 1, 1, 1, 1, 2, 2, 2, 0]);
        let count = if self.dice.chance(1) { 9 } else { count };
        let mut parts = Vec::new();
        for _ in 0..count {
            let mut lease = self.lease();
            lease.flags |= self.maybe(20, flag::RES_PERSISTENT);
            if class_of(lease.name) == Some(Class::Shared) || self.dice.chance(10) {
                lease.flags |= self.maybe(45, flag::RES_SHARED);
            }
            if self.dice.chance(8) {
                lease.flags |= flag::RES_LVER;
                lease.lver = self.dice.below(6);
            }
            if self.dice.chance(4) {
                lease.flags |= flag::RES_NUM_HOSTS;
                lease.data32 = self.dice.one_of(&[0, if lease.lockspace == THIRD { 0 } else { 2000 }]);
            }
            parts.push(Part::Resource(lease));
        }
        let owner = self.dice.one_of(&["", "", "vm", FULL_NAME]);
        parts.push(Part::Options { owner });
        let flags = self.maybe(40, flag::ACQUIRE_LVB)
            | self.maybe(30, flag::ACQUIRE_ORPHAN)
            | self.maybe(8, flag::ACQUIRE_ORPHAN_ONLY)
            | self.maybe(20, flag::ACQUIRE_OWNER_NOWAIT);
        self.with_data(cmd::ACQUIRE, parts, flags, count)
    }

    fn with_data(&mut self, cmd: u32, parts: Vec<Part>, flags: u32, data: u32) -> Step {
        match self.ask_with_target(cmd, parts, flags) {
            Step::Ask(who, request) => Step::Ask(who, Request { data, ..request }),
            other => other,
        }
    }

    fn release(&mut self) -> Step {
        match self.dice.below(100) {
            0..15 => {
                let flags = flag::RELEASE_ALL | self.maybe(10, flag::RELEASE_RENAME | flag::RELEASE_ORPHAN);
                self.ask_with_target(cmd::RELEASE, Vec::new(), flags)
            }
            15..30 => {
                let mut lease = self.lease();
                if self.dice.chance(30) {
                    lease.name = "";
                }
                let flags = flag::RELEASE_ORPHAN | self.maybe(10, flag::RELEASE_RENAME);
                self.with_data(cmd::RELEASE, vec![Part::Bare(lease)], flags, 1)
            }
            30..50 => {
                let old = self.lease();
                let mut new = old.clone();
                let names = class_of(old.name).map_or(&[][..], other_names);
                if let [_, ..] = names {
                    new.name = self.dice.one_of(names);
                }
                let parts = vec![Part::Bare(old), Part::Bare(new)];
                self.with_data(cmd::RELEASE, parts, flag::RELEASE_RENAME, 2)
            }
            _ => {
                let count = self.dice.one_of(&[1, 1, 1, 1, 2, 3, 0]);
                let parts = (0..count).map(|_| Part::Bare(self.lease())).collect();
                self.with_data(cmd::RELEASE, parts, 0, count)
            }
        }
    }

    fn convert(&mut self) -> Step {
        let place = self.place_of(|place| place.class == Class::Shared);
        let mut lease = if self.dice.chance(90) { Self::lease_at(&place) } else { self.lease() };
        lease.flags |= self.maybe(50, flag::RES_SHARED);
        let flags = self.maybe(20, flag::ACQUIRE_OWNER_NOWAIT);
        self.ask_with_target(cmd::CONVERT, vec![Part::Bare(lease)], flags)
    }

    fn value(&mut self) -> Step {
        let lease = Part::Bare(self.lease());
        let who = self.who();
        if self.dice.chance(50) {
            let length = self.dice.one_of(&[1, 5, 100, 512, 513, 4096]);
            let byte = u8::try_from(self.dice.below(256)).unwrap_or(0);
            return Step::Ask(who, Request::new(cmd::SET_LVB, vec![lease, Part::Bytes(byte, length)]));
        }
        let data2 = Data2::Number(self.dice.one_of(&[0, 0, 1, 100, 512]));
        Step::Ask(who, Request { data2, ..Request::new(cmd::GET_LVB, vec![lease]) })
    }

    fn request(&mut self) -> Step {
        let place = self.place_of(|place| place.class == Class::Requested);
        let mut lease = if self.dice.chance(80) { Self::lease_at(&place) } else { self.lease() };
        if self.dice.chance(50) {
            lease.name = self.dice.one_of(other_names(Class::Requested));
        }
        lease.lver = self.dice.one_of(&[0, 0, 1, 2, 5, 20]);
        let who = self.who();
        let flags = self.maybe(60, flag::NEXT_LVER);
        let data = self.dice.one_of(&[0, 1, 1, 2, 3]);
        Step::Ask(who, Request { flags, data, ..Request::new(cmd::REQUEST, vec![Part::Resource(lease)]) })
    }

    fn reading(&mut self) -> Step {
        let who = self.who();
        let parts = |part| vec![part];
        let request = match self.dice.below(10) {
            0 => {
                let place = self.dice.one_of(&[
                    Where::Leases,
                    Where::Leases,
                    Where::More,
                    Where::Missing,
                    Where::Empty,
                    Where::Directory,
                ]);
                Request::new(cmd::ALIGN, parts(Part::Disk(place, 0)))
            }
            1..3 => Request::new(cmd::READ_LOCKSPACE, parts(self.space())),
            n => {
                let mut lease = self.lease();
                if self.dice.chance(15) {
                    lease = Self::lease_at(&PLACES[12]);
                }
                if self.dice.chance(15) {
                    lease.name = "";
                }
                if self.dice.chance(15) {
                    lease.lockspace = "";
                }
                lease.flags |= self.dice.one_of(&[0, 0, 0, flag::SECTOR512 | flag::ALIGN1M, flag::SECTOR4K]);
                let cmd = if n < 6 { cmd::READ_RESOURCE } else { cmd::READ_RESOURCE_OWNERS };
                Request::new(cmd, parts(Part::Resource(lease)))
            }
        };
        Step::Ask(who, request)
    }

    fn formatting(&mut self) -> Step {
        let who = self.who();
        if self.dice.chance(15) {
            let (name, mut at) = SPACES[1 + self.number(2)];
            let mut flags = if name == THIRD { flag::SECTOR4K | flag::ALIGN1M } else { 0 };
            if self.dice.chance(20) {
                flags = self.dice.one_of(&[flag::SECTOR512, flag::ALIGN8M, flag::SECTOR512 | flag::ALIGN8M]);
            }
            if self.dice.chance(25) {
                at.0 = Where::Missing;
            }
            let part = Part::Lockspace { name, host_id: 1, flags, at };
            let data2 = Data2::Number(1);
            return Step::Ask(who, Request { data2, ..Request::new(cmd::WRITE_LOCKSPACE, vec![part]) });
        }
        let place = self.place_of(|place| place.lockspace != THIRD);
        let mut lease = Self::lease_at(&place);
        if place.class == Class::Odd {
            lease.flags =
                self.dice.one_of(&[0, flag::SECTOR4K | flag::ALIGN1M, flag::SECTOR512 | flag::ALIGN1M]);
        }
        if self.dice.chance(15) {
            lease.flags =
                self.dice.one_of(&[flag::SECTOR512, flag::SECTOR4K, flag::SECTOR512 | flag::ALIGN8M]);
        }
        if self.dice.chance(10) {
            lease.disks[0].0 =
                self.dice.one_of(&[Where::Missing, Where::Empty, Where::Directory, Where::Closed]);
        }
        let data = self.dice.one_of(&[0, 0, 1, 50, 2000, 2001, 5000]);
        let flags = self.maybe(15, flag::WRITE_CLEAR);
        let data2 = Data2::Number(self.dice.one_of(&[0, 7]));
        let parts = vec![Part::Resource(lease)];
        Step::Ask(who, Request { flags, data, data2, ..Request::new(cmd::WRITE_RESOURCE, parts) })
    }
}
