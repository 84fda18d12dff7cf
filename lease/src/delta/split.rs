//! A read of hosts that fails is read again in parts: groups of hosts, then the hosts of a group one by one, so that a sector that cannot be
//! read hides nobody but its own host (docs/decisions/0022-unreadable-sectors.md).

use crate::hosts::HOSTS_PER_GROUP;
use crate::timing::MonoTime;
use std::ops::Range;

/// What has failed, and is being read in parts. Hosts by their zero-based indices.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Split {
    /// The piece that it is of, and whether all of it is wanted; else the groups in which a host id was ever used are.
    pub(super) piece: usize,
    pub(super) whole: bool,
    /// When what has failed was asked for.
    pub(super) asked: MonoTime,
    /// Whether some of it was given up.
    pub(super) missed: bool,
    /// Those whose groups come next.
    left: Range<usize>,
    ones: Option<Ones>,
}

/// A group that is read host by host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Ones {
    pub(super) hosts: Range<usize>,
    next: usize,
    /// Those that could not be read, a bit each from the first host of the group on.
    pub(super) lost: u16,
}

const _: () = assert!(HOSTS_PER_GROUP == u16::BITS as usize);

/// What is to be done next.
pub(super) enum Part {
    /// These are to be read.
    Read(Range<usize>),
    /// A group was read host by host, to its end.
    GroupDone(Ones),
    /// Nothing is left.
    Done,
}

impl Split {
    /// The hosts begin with a group.
    pub(super) fn new(piece: usize, whole: bool, hosts: Range<usize>, asked: MonoTime) -> Self {
        Self { piece, whole, asked, missed: false, left: hosts, ones: None }
    }

    /// The next part; of groups only those that are `wanted`.
    pub(super) fn next(&mut self, wanted: impl Fn(&Range<usize>) -> bool) -> Part {
        if let Some(ones) = &mut self.ones {
            if ones.next < ones.hosts.end {
                return Part::Read(ones.next..ones.next + 1);
            }
        }
        if let Some(ones) = self.ones.take() {
            return Part::GroupDone(ones);
        }
        while !self.left.is_empty() {
            let group = self.left.start..(self.left.start + HOSTS_PER_GROUP).min(self.left.end);
            self.left.start = group.end;
            if self.whole || wanted(&group) {
                return Part::Read(group);
            }
        }
        Part::Done
    }

    /// A part was read, or could not be.
    pub(super) fn ended(&mut self, part: &Range<usize>, read: bool) {
        match &mut self.ones {
            Some(ones) => {
                ones.next = part.end;
                if !read {
                    ones.lost |= 1 << (part.start - ones.hosts.start);
                }
            }
            None if !read => self.ones = Some(Ones { hosts: part.clone(), next: part.start, lost: 0 }),
            None => {}
        }
    }

    /// Nothing more of it is read.
    pub(super) fn give_up(&mut self) {
        self.missed = true;
        self.left = 0..0;
        if let Some(ones) = &mut self.ones {
            for host in ones.next..ones.hosts.end {
                ones.lost |= 1 << (host - ones.hosts.start);
            }
            ones.next = ones.hosts.end;
        }
    }
}
