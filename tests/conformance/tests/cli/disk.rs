//! Which sectors of a file changed, without what varies from run to run: times, and sums that cover them.

use std::fmt::Write;
use std::path::Path;

const SECTOR: usize = 512;
const MIB: usize = 1 << 20;
/// Runs of changed sectors that are listed one by one.
const RUNS_MAX: usize = 8;
const DELTA_MAGIC: u32 = 0x1221_2010;
const PAXOS_MAGIC: u32 = 0x0615_2010;
const CLEARED_MAGIC: u32 = 0x1128_2016;
const REQUEST_MAGIC: u32 = 0x0829_2011;

/// The bytes of a file with every time replaced by 1, and every sum over a time by 0. Of host id leases the event and the bitmap
/// are left out, which a daemon writes when it comes to it; of requests the bytes that the original leaves as its memory was.
pub(crate) fn masked(path: &Path) -> Vec<u8> {
    let mut bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut in_resource = false;
    for at in (0..bytes.len()).step_by(SECTOR) {
        let Some(sector) = bytes.get_mut(at..at + SECTOR) else { break };
        let magic = u32::from_le_bytes([sector[0], sector[1], sector[2], sector[3]]);
        if at % MIB == 0 {
            in_resource = matches!(magic, PAXOS_MAGIC | CLEARED_MAGIC);
        }
        match magic {
            DELTA_MAGIC => {
                sector[176..].fill(0);
                mask(sector, &[152], 168..172);
            }
            REQUEST_MAGIC => sector[20..24].fill(0),
            PAXOS_MAGIC | CLEARED_MAGIC if at % MIB == 0 => mask(sector, &[152, 192], 168..172),
            _ if in_resource && at % MIB >= SECTOR => mask(sector, &[32], 48..52),
            _ => {}
        }
    }
    bytes
}

/// Masks the times at these offsets, eight bytes each, and the sum over them.
fn mask(sector: &mut [u8], times: &[usize], sum: std::ops::Range<usize>) {
    for &at in times {
        let time = &mut sector[at..at + 8];
        if time.iter().any(|&byte| byte != 0) {
            time.fill(0);
            time[0] = 1;
            sector[sum.clone()].fill(0);
        }
    }
}

/// A line for each run of changed sectors: where it is, how long, and a digest of what is there now.
pub(crate) fn changes(before: &[u8], after: &[u8]) -> Vec<String> {
    fn sector(bytes: &[u8], n: usize) -> Option<&[u8]> {
        bytes.get(n * SECTOR..(n + 1) * SECTOR)
    }
    if before == after {
        return Vec::new();
    }
    let sectors = before.len().max(after.len()).div_ceil(SECTOR);
    let mut lines = Vec::new();
    let mut n = 0;
    while n < sectors {
        if sector(before, n) == sector(after, n) {
            n += 1;
            continue;
        }
        let start = n;
        while n < sectors && sector(before, n) != sector(after, n) {
            n += 1;
        }
        let now = after.get(start * SECTOR..(n * SECTOR).min(after.len())).unwrap_or_default();
        let mut line = format!("{}+{} {:016x}", start * SECTOR, (n - start) * SECTOR, digest(now));
        if now.iter().all(|&byte| byte == 0) {
            let _ = write!(line, " zeros");
        }
        lines.push(line);
    }
    if lines.len() > RUNS_MAX {
        let all: String = lines.concat();
        lines = vec![format!("{} runs {:016x}", lines.len(), digest(all.as_bytes()))];
    }
    lines
}

/// FNV-1a.
fn digest(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}
