//! The reads and writes of an acquire and a release without any daemon: what the disk alone takes.
//!
//! The chain is that of our plan (docs/decisions/0001): leader and own block, write block, read all blocks, write block, read all
//! blocks, write leader; and for a release: write block, read leader, write leader, one after the other, where ours reads beside the first write
//! (docs/decisions/0024): what a daemon does of releases may be more than this floor. Through memory of the daemon's kind: huge pages where
//! there are any (docs/decisions/0014).
//!
//! What nobody looks at costs less than a read: where the storage's data is copied by a processor, as a virtual machine's is, the memory stays
//! in the caches of the one that copies. A chain that [looks](Chain::looking) at what it has read pays for both, as whoever acquires has to.

use std::fs::File;
use std::hint::black_box;
use std::ops::Range;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;
use sanlock_blockio::{AlignedBuf, HUGE_MEMORY_MAX, HugePages};

use crate::place::Place;

/// How long huge pages are waited for before ordinary memory has to do.
const PAGES_MAX: Duration = Duration::from_secs(2);

/// Sectors in front of the hosts' blocks: leader and request record.
const SECTORS_BEFORE_BLOCKS: u64 = 2;

/// What a host's block says of ballots, and of sharing (disk-format.md 7.4, 7.5).
const DBLOCK: Range<usize> = 0..56;
const MODE_BLOCK: Range<usize> = 128..144;

/// A lease area on which the chains are run. The contents mean nothing.
#[derive(Debug)]
pub struct Chain {
    file: File,
    /// The kernel flushes a block device twice for a write with `O_SYNC` that a thread waits for (docs/decisions/0017); once is the floor.
    flushes: bool,
    offset: u64,
    sector: usize,
    blocks: usize,
    looks: bool,
    memory: AlignedBuf,
}

impl Chain {
    /// On area `area` of `place`, for a lease of `num_hosts` hosts. Writes the whole area, so that no read meets a hole.
    ///
    /// # Panics
    /// When the storage cannot be used.
    #[must_use]
    pub fn new(place: &Place, area: u64, num_hosts: u64) -> Self {
        let flushes = std::fs::metadata(place.path()).is_ok_and(|found| found.file_type().is_block_device());
        let flags = if flushes { OFlag::O_DIRECT } else { OFlag::O_DIRECT | OFlag::O_SYNC };
        let file = File::options().read(true).write(true).custom_flags(flags.bits()).open(place.path());
        let file = file.unwrap_or_else(|error| panic!("{}: {error}", place.path()));
        let length = usize::try_from(place.align()).unwrap_or_else(|_| panic!("the area is too large"));
        let sector = place.sector() as usize;
        // What our plan reads; the original reads the next power of two (lease-algorithms.md 1.5).
        let sectors = num_hosts + SECTORS_BEFORE_BLOCKS;
        let blocks = usize::try_from(sectors).map_or(length, |sectors| length.min(sectors * sector));
        let mut chain = Self {
            file,
            flushes,
            offset: area * place.align(),
            sector,
            blocks,
            looks: false,
            memory: memory(length),
        };
        chain.write(0, length);
        chain
    }

    /// The same, but an acquire looks at the block of each host that it has read, as the lease code does.
    #[must_use]
    pub fn looking(self) -> Self {
        Self { looks: true, ..self }
    }

    /// The chain of an acquire of a free lease; how long it took.
    pub fn acquire(&mut self) -> Duration {
        let begin = Instant::now();
        self.read(3 * self.sector);
        self.write(2 * self.sector, self.sector);
        self.read_blocks();
        self.write(2 * self.sector, self.sector);
        self.read_blocks();
        self.write(0, self.sector);
        begin.elapsed()
    }

    /// The chain of a release; how long it took.
    pub fn release(&mut self) -> Duration {
        let begin = Instant::now();
        self.write(2 * self.sector, self.sector);
        self.read(self.sector);
        self.write(0, self.sector);
        begin.elapsed()
    }

    fn read_blocks(&mut self) {
        self.read(self.blocks);
        if self.looks {
            let sectors = self.memory[..self.blocks].chunks_exact(self.sector);
            let any =
                sectors.fold(0, |any, sector| any | any_bit(&sector[DBLOCK]) | any_bit(&sector[MODE_BLOCK]));
            black_box(any);
        }
    }

    fn read(&mut self, length: usize) {
        let offset = self.offset;
        let (file, bytes) = (&self.file, &mut self.memory[..length]);
        file.read_exact_at(bytes, offset).unwrap_or_else(|error| panic!("reading {length} bytes: {error}"));
    }

    fn write(&mut self, at: usize, length: usize) {
        let offset = self.offset + at as u64;
        let (file, bytes) = (&self.file, &self.memory[..length]);
        file.write_all_at(bytes, offset).unwrap_or_else(|error| panic!("writing {length} bytes: {error}"));
        if self.flushes {
            file.sync_data().unwrap_or_else(|error| panic!("flushing: {error}"));
        }
    }
}

/// All of these bytes in one word: whether any is not zero.
fn any_bit(bytes: &[u8]) -> u64 {
    let word = |chunk: &[u8]| chunk.try_into().map_or(0, u64::from_ne_bytes);
    bytes.chunks_exact(8).fold(0, |any, chunk| any | word(chunk))
}

/// A buffer of `length` bytes, in huge pages if there are any before long. One stock holds no more than a daemon may, so there are as many as are
/// needed: raw is what the device gives, whatever memory a daemon has.
fn memory(length: usize) -> AlignedBuf {
    static STOCKS: Mutex<Vec<Arc<HugePages>>> = Mutex::new(Vec::new());
    let mut stocks = STOCKS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(buf) = stocks.iter().find_map(|stock| stock.take(length)) {
        return buf;
    }
    if stocks.last().is_none_or(|stock| stock.bytes() + length > HUGE_MEMORY_MAX) {
        stocks.extend(HugePages::start(|text| eprintln!("raw: {text}")));
    }
    let end = Instant::now() + PAGES_MAX;
    while let Some(stock) = stocks.last() {
        if let Some(buf) = stock.take(length) {
            return buf;
        }
        if Instant::now() > end {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    eprintln!("raw: {length} bytes of ordinary memory");
    AlignedBuf::zeroed(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::PlaceKind;

    #[test]
    fn the_chain_reads_what_the_number_of_hosts_demands() {
        let Some(place) = Place::new(PlaceKind::File, 2) else { return };
        assert_eq!(Chain::new(&place, 0, 2000).blocks, 2002 * 512);
        assert_eq!(Chain::new(&place, 0, 62).blocks, 32 << 10);
        let mut chain = Chain::new(&place, 1, 8);
        assert_eq!(chain.blocks, 10 * 512);
        assert!(chain.acquire() > Duration::ZERO && chain.release() > Duration::ZERO);
        assert!(chain.looking().acquire() > Duration::ZERO);
    }
}
