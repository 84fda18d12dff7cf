//! A cursor over the bytes received so far. Running out of bytes is not an error but the answer "I need this many".

use crate::limits::MAX_DISKS;
use crate::types::{Disk, Resource, ResourceSpec, WireStruct};

pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    pos: usize,
}

/// How many bytes, counted from the beginning of the payload, are needed to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Need(pub(crate) usize);

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, pos: 0 }
    }

    /// The next `len` bytes. `tail`: bytes that will be wanted after these in any case, so that they can be asked for in
    /// the same breath.
    pub(crate) fn take(&mut self, len: usize, tail: usize) -> Result<&'a [u8], Need> {
        let end = self.pos.saturating_add(len);
        match self.bytes.get(self.pos..end) {
            Some(bytes) => {
                self.pos = end;
                Ok(bytes)
            }
            None => Err(Need(end.saturating_add(tail))),
        }
    }

    pub(crate) fn structure<T: WireStruct>(&mut self, tail: usize) -> Result<T, Need> {
        let start = self.pos;
        let bytes = self.take(size_of::<T>(), tail)?;
        let mut value = T::read_from_bytes(bytes).map_err(|_| Need(start.saturating_add(size_of::<T>())))?;
        value.clear_padding();
        Ok(value)
    }

    /// A resource and its disks; `Ok(Err(resource))` when its number of disks is 0 or above 4 and so nobody can say what
    /// follows.
    pub(crate) fn resource_spec(&mut self, tail: usize) -> Result<Result<ResourceSpec, Resource>, Need> {
        let resource: Resource = self.structure(tail)?;
        let count = resource.num_disks.get() as usize;
        if count == 0 || count > MAX_DISKS {
            return Ok(Err(resource));
        }
        let mut disks = Vec::with_capacity(count);
        for index in 0..count {
            let rest = (count - index - 1) * Disk::SIZE;
            disks.push(self.structure::<Disk>(rest.saturating_add(tail))?);
        }
        Ok(ResourceSpec::new(resource, disks).map_err(|_| resource))
    }
}
