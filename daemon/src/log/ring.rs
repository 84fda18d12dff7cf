//! The newest log text in memory, for LOG_DUMP (socket-protocol.md 7.6).

/// Bytes kept; also what one LOG_DUMP reply carries at most.
pub const RING_BYTES: usize = 1024 * 1024;

/// A ring of text. Old text is overwritten by new, in the middle of a line if need be.
#[derive(Debug)]
pub(super) struct Ring {
    bytes: Vec<u8>,
    capacity: usize,
    /// Where the next byte goes once the ring is full.
    next: usize,
}

impl Ring {
    pub(super) fn new(capacity: usize) -> Self {
        // Reserved at once and touched as it fills, so that logging never has to move a megabyte.
        Self { bytes: Vec::with_capacity(capacity), capacity, next: 0 }
    }

    /// Appends a line, which ends in a newline and is not longer than the ring.
    pub(super) fn push(&mut self, line: &[u8]) {
        let fresh = line.len().min(self.capacity - self.bytes.len());
        let (head, tail) = line.split_at(fresh);
        self.bytes.extend_from_slice(head);
        self.overwrite(tail);
    }

    /// Puts bytes over the oldest ones, at most once round.
    fn overwrite(&mut self, bytes: &[u8]) {
        let (to_the_end, from_the_start) = bytes.split_at(bytes.len().min(self.bytes.len() - self.next));
        for (at, part) in [(self.next, to_the_end), (0, from_the_start)] {
            if let Some(place) = self.bytes.get_mut(at..at + part.len()) {
                place.copy_from_slice(part);
            }
        }
        self.next = (self.next + bytes.len()) % self.capacity;
    }

    /// Puts the text, oldest first, into `text`. Without its last newline while nothing was overwritten; exactly the capacity afterwards.
    pub(super) fn dump(&self, text: &mut Vec<u8>) {
        let wrapped = self.bytes.len() == self.capacity;
        let (newest, oldest) = self.bytes.split_at(if wrapped { self.next } else { 0 });
        text.clear();
        text.extend_from_slice(oldest);
        text.extend_from_slice(newest);
        if !wrapped && text.last() == Some(&b'\n') {
            text.pop();
        }
    }
}

/// Room for all the text there may be, which the kernel has given already.
pub(super) fn room() -> Vec<u8> {
    let mut room = vec![1; RING_BYTES];
    room.clear();
    room
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dump(ring: &Ring) -> Vec<u8> {
        let mut text = Vec::new();
        ring.dump(&mut text);
        text
    }

    #[test]
    fn a_ring_that_has_not_wrapped_gives_lines_without_the_last_newline() {
        let mut ring = Ring::new(16);
        assert_eq!(dump(&ring), b"");
        ring.push(b"one\n");
        ring.push(b"two\n");
        assert_eq!(dump(&ring), b"one\ntwo");
    }

    #[test]
    fn a_wrapped_ring_gives_exactly_its_capacity_starting_in_mid_line() {
        let mut ring = Ring::new(10);
        for line in ["aaaa\n", "bbbb\n", "cc\n"] {
            ring.push(line.as_bytes());
        }
        assert_eq!(dump(&ring), b"a\nbbbb\ncc\n");
        for n in 0..100 {
            ring.push(format!("{n}\n").as_bytes());
            assert_eq!(dump(&ring).len(), 10);
        }
        assert_eq!(dump(&ring), b"\n97\n98\n99\n");
    }

    /// Whoever logs waits for the lock meanwhile, renewals too: nothing is allocated under it.
    #[test]
    fn a_full_ring_has_room_in_what_was_made_ready() {
        let mut ring = Ring::new(RING_BYTES);
        (0..RING_BYTES).for_each(|_| ring.push(b"\n"));
        let mut text = room();
        let (place, capacity) = (text.as_ptr(), text.capacity());
        ring.dump(&mut text);
        assert_eq!((text.len(), text.as_ptr(), text.capacity()), (RING_BYTES, place, capacity));
    }
}
