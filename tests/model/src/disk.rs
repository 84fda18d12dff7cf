//! The shared disks: one resource of three hosts, on one disk or three. A sector is a number: the place of its content in a table
//! of all contents that ever turned up.

use crate::explore::Map;
use crate::{DISKS, HOSTS};
use sanlock_lease::geometry::HostId;
use sanlock_lease::limits::SECTOR_BYTES_MAX;
use sanlock_lease::machine::{Content, Sectors};
use sanlock_lease::record::{HostBlock, RawLeader};
use sanlock_sim::layout;

/// Number of a content in [`Contents`].
pub type ContentId = u32;

/// First block sector of a resource.
const FIRST_BLOCK: u64 = 2;
const ZEROS: [u8; SECTOR_BYTES_MAX] = [0; SECTOR_BYTES_MAX];

/// Every sector content there ever was, once.
#[derive(Debug, Default)]
pub struct Contents {
    numbers: Map<Content, ContentId>,
    contents: Vec<(Content, Box<[u8]>)>,
}

impl Contents {
    /// The number of a content.
    ///
    /// # Panics
    /// There are more than 2^32 of them.
    pub fn number(&mut self, content: &Content) -> ContentId {
        if let Some(id) = self.numbers.get(content) {
            return *id;
        }
        let id = crate::number_of(self.contents.len());
        let mut bytes = vec![0; layout::GEOMETRY.sector().slice_len()].into_boxed_slice();
        content.encode(&mut bytes);
        self.contents.push((content.clone(), bytes));
        self.numbers.insert(content.clone(), id);
        id
    }

    /// A content.
    #[must_use]
    pub fn content(&self, id: ContentId) -> &Content {
        &self.contents[id as usize].0
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self, id: ContentId) -> &[u8] {
        &self.contents[id as usize].1
    }

    /// The same, or nothing for a sector that was not read.
    fn bytes_if(&self, id: ContentId) -> &[u8] {
        self.contents.get(id as usize).map_or(&ZEROS, |(_, bytes)| bytes)
    }

    /// A content that is a leader.
    #[must_use]
    pub fn leader(&self, id: ContentId) -> RawLeader {
        match self.content(id) {
            Content::Leader(leader) => *leader,
            Content::Block(_) | Content::Value(_) | Content::Delta { .. } => RawLeader::zeroed(),
        }
    }

    /// A content that is a block.
    #[must_use]
    pub fn block(&self, id: ContentId) -> HostBlock {
        match self.content(id) {
            Content::Block(block) => *block,
            Content::Leader(_) | Content::Value(_) | Content::Delta { .. } => HostBlock::zeroed(),
        }
    }
}

/// The sectors of the resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Resource {
    /// Sector 0.
    pub leader: ContentId,
    /// The block of each host.
    pub blocks: [ContentId; HOSTS],
}

/// The areas of the resource. With fewer disks than [`DISKS`] the last ones are never touched.
pub type Disks = [Resource; DISKS];

/// Whose block a sector is.
#[must_use]
pub fn block_owner(sector: u64) -> Option<usize> {
    usize::try_from(sector.checked_sub(FIRST_BLOCK)?).ok().filter(|h| *h < HOSTS)
}

impl Resource {
    /// A free lease of version 0.
    pub fn formatted(contents: &mut Contents) -> Self {
        let hosts = HOSTS as u64;
        let leader = contents.number(&Content::Leader(layout::free_leader(0, hosts)));
        let unused = contents.number(&Content::Block(HostBlock::zeroed()));
        Self { leader, blocks: [unused; HOSTS] }
    }

    /// A write lands. Anything but the leader and a host's block is ignored here and a violation elsewhere.
    pub fn land(&mut self, sector: u64, content: ContentId) {
        match block_owner(sector) {
            Some(host) => self.blocks[host] = content,
            None if sector == 0 => self.leader = content,
            None => {}
        }
    }

    /// The same with the sectors outside a range set to a fixed number: what a read of that range depends on.
    #[must_use]
    pub fn only(&self, first: u64, count: u64) -> Self {
        let within = |sector: u64, content| {
            if (first..first + count).contains(&sector) { content } else { ContentId::MAX }
        };
        let block = |host: usize| within(FIRST_BLOCK + host as u64, self.blocks[host]);
        Self { leader: within(0, self.leader), blocks: std::array::from_fn(block) }
    }

    /// A read of a range, at this very moment.
    #[must_use]
    pub fn view<'a>(&self, contents: &'a Contents, first: u64, count: u64) -> View<'a> {
        View {
            first,
            count,
            leader: contents.bytes_if(self.leader),
            blocks: self.blocks.map(|b| contents.bytes_if(b)),
        }
    }
}

/// What a read of the resource returns.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    first: u64,
    count: u64,
    leader: &'a [u8],
    blocks: [&'a [u8]; HOSTS],
}

impl Sectors for View<'_> {
    fn sector(&self, index: u64) -> Option<&[u8]> {
        if index < self.first || index >= self.first + self.count {
            return None;
        }
        Some(match block_owner(index) {
            Some(host) => self.blocks[host],
            None if index == 0 => self.leader,
            None => &ZEROS[..layout::GEOMETRY.sector().slice_len()],
        })
    }

    fn next_in_use(&self, from: u64) -> Option<u64> {
        let end = (self.first + self.count).min(FIRST_BLOCK + HOSTS as u64);
        Some(from.max(self.first)).filter(|i| *i < end)
    }
}

/// The id of the host with this index.
#[must_use]
pub fn host_id(index: usize) -> HostId {
    layout::host_id(index as u64 + 1)
}
