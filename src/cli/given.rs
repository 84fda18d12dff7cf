//! The options of one command line, gathered: what was given last, what accumulates, and numbers read from it.

use super::UsageError;
use super::tokenizer::{Long, Token, tokenize};
use sanlock_lease::geometry::{AlignSize, Geometry, SectorSize};
use sanlock_lease::limits::RESOURCES_PER_REQUEST_MAX;
use sanlock_lease::text::number::{bare, strict_prefixed};
use sanlock_lease::text::{LockspaceSpec, ResourceSpec, strict};
use std::ops::RangeInclusive;

/// Sector and align size as given; each may be missing. If both are there they fit together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Sizes {
    /// `-Z`
    pub(crate) sector: Option<SectorSize>,
    /// `-A`
    pub(crate) align: Option<AlignSize>,
}

impl Sizes {
    /// The pair, when both were given.
    pub(crate) fn geometry(self) -> Option<Geometry> {
        Geometry::new(self.sector?, self.align?).ok()
    }
}

/// The options of one command line.
#[derive(Debug, Default)]
pub(crate) struct Given<'a> {
    /// Last value of each letter; a few dozen letters at most.
    last: Vec<(u8, &'a [u8])>,
    /// `-D` anywhere.
    pub(crate) debug: bool,
    /// `--json`
    pub(crate) json: bool,
    /// `--progress`
    pub(crate) progress: bool,
    /// `--plot`
    pub(crate) plot: Option<&'a [u8]>,
    /// `-s`, later ones laid over earlier ones.
    pub(crate) lockspace: Option<LockspaceSpec>,
    /// The last `-s` that has an offset, if that is left empty.
    pub(crate) lockspace_without_offset: Option<&'a [u8]>,
    /// `-x`, as they stand: only actions on an index read them, later ones laid over earlier ones.
    pub(crate) indexes: Vec<&'a [u8]>,
    /// `-r`
    pub(crate) resources: Vec<ResourceSpec>,
    /// `-Z`, `-A`
    pub(crate) sizes: Sizes,
    /// `-c` and its arguments.
    pub(crate) command: Option<&'a [Vec<u8>]>,
    /// What `-D` shows of the lockspaces and resources that come after it.
    pub(crate) debug_lines: Vec<String>,
}

impl<'a> Given<'a> {
    /// Reads options and checks those that every action has in common. `long`: those with long names
    /// among them.
    ///
    /// # Errors
    /// The first option that cannot be understood. Unlike the original, which drops such a resource, lockspace field or size
    /// and carries on without it (command-line.md 18.2 #28).
    pub(crate) fn read(args: &'a [Vec<u8>], long: &[Long]) -> Result<Self, UsageError> {
        let mut given = Self::default();
        for token in tokenize(args, long)? {
            match token {
                Token::Debug => given.debug = true,
                Token::Long { option: Long::Json, .. } => given.json = true,
                Token::Long { option: Long::Progress, .. } => given.progress = true,
                Token::Long { option: Long::Plot, value } => given.plot = Some(value),
                Token::Value { letter: b's', value } => given.add_lockspace(value)?,
                Token::Value { letter: b'r', value } => given.add_resource(value)?,
                Token::Value { letter: b'x', value } => given.indexes.push(value),
                Token::Value { letter, value } => {
                    given.last.retain(|(l, _)| *l != letter);
                    given.last.push((letter, value));
                }
                Token::Command(command) => given.command = Some(command),
            }
        }
        given.sizes = given.read_sizes()?;
        Ok(given)
    }

    fn add_lockspace(&mut self, value: &'a [u8]) -> Result<(), UsageError> {
        let fields = strict::lockspace(value).map_err(|error| {
            UsageError::explain(&format!("-s {}: {error}", String::from_utf8_lossy(value)))
        })?;
        if fields.offset.is_some() {
            self.lockspace_without_offset = strict::is_left_empty(value, 3).then_some(value);
        }
        let spec = self.lockspace.get_or_insert_default();
        spec.merge(fields);
        if self.debug {
            self.debug_lines.push(format!(
                "lockspace {} host_id {} path {} offset {}",
                spec.name,
                spec.host_id,
                String::from_utf8_lossy(&spec.path),
                spec.offset
            ));
        }
        Ok(())
    }

    fn add_resource(&mut self, value: &[u8]) -> Result<(), UsageError> {
        if self.resources.len() >= RESOURCES_PER_REQUEST_MAX {
            return Err(UsageError::like_original(format!(
                "resource args over max {RESOURCES_PER_REQUEST_MAX}\n"
            ))
            .and_explain(&format!("one command takes up to {RESOURCES_PER_REQUEST_MAX} resources (-r): use another one for the rest")));
        }
        let spec = strict::resource(value).map_err(|error| {
            UsageError::like_original(format!("resource arg parse error {}\n\n", error.code()))
                .and_explain(&format!("-r {}: {error}", String::from_utf8_lossy(value)))
        })?;
        if self.debug {
            let flags = u32::from(spec.lver.is_some()) | if spec.shared { 4 } else { 0 };
            self.debug_lines.push(format!(
                "resource {} {} num_disks {} flags {flags:x} lver {}",
                spec.lockspace,
                spec.name,
                spec.disks.len(),
                spec.lver.unwrap_or(0)
            ));
            for disk in &spec.disks {
                self.debug_lines.push(format!(
                    "resource disk {} {}",
                    String::from_utf8_lossy(&disk.path),
                    disk.offset
                ));
            }
        }
        self.resources.push(spec);
        Ok(())
    }

    /// Checks `-Z` and `-A` together (command-line.md 3.3).
    fn read_sizes(&self) -> Result<Sizes, UsageError> {
        let sector = self.number::<u32>(b'Z', 0..=u32::MAX)?;
        let align = match self.value(b'A') {
            None => None,
            Some(word) => Some(align_word(word).ok_or_else(|| {
                UsageError::explain(&format!(
                    "-A {} is no align size, use 1M, 2M, 4M or 8M",
                    String::from_utf8_lossy(word)
                ))
            })?),
        };
        let invalid = || {
            let align = align.map_or(0, AlignSize::bytes);
            UsageError::like_original(format!(
                "Invalid sector_size/align_size combination ({}/{align})\n\
                 Use one of: 512/1M, 4096/1M, 4096/2M, 4096/4M, 4096/8M.\n",
                sector.unwrap_or(0)
            ))
            .and_explain("-Z and -A: give a pair that exists, or neither")
        };
        let sizes = Sizes {
            sector: sector.map(|bytes| SectorSize::from_bytes(bytes).ok_or_else(invalid)).transpose()?,
            align,
        };
        match sizes {
            Sizes { align: None, .. } => Ok(sizes),
            _ if sizes.geometry().is_some() => Ok(sizes),
            _ => Err(invalid()),
        }
    }

    /// The last value of a letter.
    pub(crate) fn value(&self, letter: u8) -> Option<&'a [u8]> {
        self.last.iter().find(|(l, _)| *l == letter).map(|(_, value)| *value)
    }

    /// The number a letter was given.
    ///
    /// # Errors
    /// The value is no number, or outside `range`.
    pub(crate) fn number<T>(&self, letter: u8, range: RangeInclusive<T>) -> Result<Option<T>, UsageError>
    where
        T: std::str::FromStr + PartialOrd + std::fmt::Display,
    {
        let expected = between(&range);
        self.number_or(letter, range, &expected)
    }

    /// The same, where fewer numbers make sense than are accepted here: `expected` names those.
    ///
    /// # Errors
    /// The value is no number, or outside `range`.
    pub(crate) fn number_or<T>(
        &self,
        letter: u8,
        range: RangeInclusive<T>,
        expected: &str,
    ) -> Result<Option<T>, UsageError>
    where
        T: std::str::FromStr + PartialOrd,
    {
        let Some(value) = self.value(letter) else { return Ok(None) };
        // As a shell hands on what other programs print; "-" is a sign here.
        let number = bare(value);
        let digits = number.strip_prefix(b"-").unwrap_or(number);
        std::str::from_utf8(number)
            .ok()
            .filter(|_| !digits.is_empty() && digits.iter().all(u8::is_ascii_digit))
            .and_then(|text| text.parse().ok())
            .filter(|number| range.contains(number))
            .map(Some)
            .ok_or_else(|| {
                UsageError::explain(&format!(
                    "-{} {}: expected {expected}",
                    char::from(letter),
                    String::from_utf8_lossy(value)
                ))
            })
    }

    /// The number of a letter that takes `0x` and a leading `0` like C does (command-line.md 3.4: U64 and U32).
    ///
    /// # Errors
    /// The value is no number, or above `max`.
    pub(crate) fn prefixed<T>(&self, letter: u8, max: T) -> Result<Option<T>, UsageError>
    where
        T: TryFrom<u64> + PartialOrd + std::fmt::Display,
    {
        let Some(value) = self.value(letter) else { return Ok(None) };
        let number = strict_prefixed("number", value).ok().and_then(|number| T::try_from(number).ok());
        number.filter(|number| *number <= max).map(Some).ok_or_else(|| {
            UsageError::explain(&format!(
                "-{} {}: expected a number from 0 to {max}, decimal, 0x… or 0…",
                char::from(letter),
                String::from_utf8_lossy(value)
            ))
        })
    }

    /// A switch: a number, on unless it is 0; off when not given.
    ///
    /// # Errors
    /// The value is no number.
    pub(crate) fn switch(&self, letter: u8) -> Result<bool, UsageError> {
        Ok(self.switched(letter)?.is_some_and(|n| n != 0))
    }

    /// The number of a switch.
    ///
    /// # Errors
    /// The value is no number.
    pub(crate) fn switched(&self, letter: u8) -> Result<Option<u32>, UsageError> {
        self.number_or(letter, SWITCH, "a number: 0 for off, 1 for on")
    }
}

/// Numbers that a switch accepts: what fits the `int` of the original.
pub(crate) const SWITCH: RangeInclusive<u32> = 0..=i32::MAX.unsigned_abs();

/// What a number of this range is called.
pub(crate) fn between<T: std::fmt::Display>(range: &RangeInclusive<T>) -> String {
    format!("a number from {} to {}", range.start(), range.end())
}

fn align_word(word: &[u8]) -> Option<AlignSize> {
    match word {
        b"1M" => Some(AlignSize::M1),
        b"2M" => Some(AlignSize::M2),
        b"4M" => Some(AlignSize::M4),
        b"8M" => Some(AlignSize::M8),
        _ => None,
    }
}
