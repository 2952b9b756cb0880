//! Looks at packets before the network stack does (XDP): counts, and drops those for the gateway that come from a blocked
//! prefix, or that open connections faster than one source may.
//!
//! It never touches what is not TCP for an address and port of the gateway, so no operator can be cut off by it.
//! Invariant: a packet that cannot be read passes.
#![no_std]
#![no_main]

mod common;
mod counts;

use aya_ebpf::{
    bindings::xdp_action,
    helpers::bpf_ktime_get_ns,
    macros::{map, xdp},
    maps::{Array, HashMap, LpmTrie, LruHashMap, PerCpuArray, RingBuf, lpm_trie::Key},
    programs::XdpContext,
};
use counts::count;
use zerohop_abi::guard::{
    Door, EVENT_INTERVAL, EVENTS_BYTES, Event, MAX_DOORS, MAX_EXTENSIONS, MAX_PREFIXES, MAX_SOURCES, MAX_TAGS,
    Settings, Verdict, meter,
};

#[map]
static DOORS: HashMap<Door, u32> = HashMap::with_max_entries(MAX_DOORS, 0);
#[map]
static BLOCK4: LpmTrie<[u8; 4], u32> = LpmTrie::with_max_entries(MAX_PREFIXES, 0);
#[map]
static BLOCK6: LpmTrie<[u8; 16], u32> = LpmTrie::with_max_entries(MAX_PREFIXES, 0);
#[map]
static SOURCES: LruHashMap<[u8; 16], u64> = LruHashMap::with_max_entries(MAX_SOURCES, 0);
#[map]
static SETTINGS: Array<Settings> = Array::with_max_entries(1, 0);
#[map]
static VERDICTS: PerCpuArray<u64> = PerCpuArray::with_max_entries(Verdict::ALL.len() as u32, 0);
#[map]
static EVENTS: RingBuf = RingBuf::with_byte_size(EVENTS_BYTES, 0);
#[map]
static TOLD: PerCpuArray<u64> = PerCpuArray::with_max_entries(1, 0);

const ETHERNET: usize = 14;
const TAG: usize = 4;
const TYPE_IPV4: u16 = 0x0800;
const TYPE_IPV6: u16 = 0x86dd;
const TYPE_VLAN: u16 = 0x8100;
const TYPE_SERVICE_VLAN: u16 = 0x88a8;
const PROTOCOL_HOP_BY_HOP: u8 = 0;
const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_ROUTING: u8 = 43;
const PROTOCOL_FRAGMENT: u8 = 44;
const PROTOCOL_AUTHENTICATION: u8 = 51;
const PROTOCOL_DESTINATION: u8 = 60;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;
/// No header begins further in; the verifier asks for a bound.
const FURTHEST: usize = 4096;

/// A TCP segment, as far as it matters.
struct Segment {
    source: [u8; 16],
    destination: [u8; 16],
    port: u16,
    flags: u8,
    is_ipv4: bool,
}

/// The headers above TCP.
struct Addressed {
    source: [u8; 16],
    destination: [u8; 16],
    is_ipv4: bool,
    /// Where TCP begins.
    at: usize,
}

/// The program.
#[xdp(frags)]
pub fn guard(ctx: XdpContext) -> u32 {
    let verdict = match read(&ctx) {
        Ok(segment) => judge(&segment),
        Err(verdict) => verdict,
    };
    count(&VERDICTS, verdict as u32);
    if verdict.passes() {
        xdp_action::XDP_PASS
    } else {
        xdp_action::XDP_DROP
    }
}

/// What becomes of a segment.
#[inline(always)]
fn judge(segment: &Segment) -> Verdict {
    if !is_ours(segment) {
        return Verdict::Other;
    }
    let Some(settings) = SETTINGS.get(0).copied() else {
        return Verdict::Passed;
    };
    let verdict = if is_blocked(segment, &settings) {
        Verdict::Blocked
    } else if segment.flags & (SYN | ACK) == SYN && settings.syn_cost > 0 && !may_open(segment, &settings) {
        Verdict::Limited
    } else {
        return Verdict::Passed;
    };
    tell(segment, verdict);
    verdict
}

/// Whether the gateway listens there.
#[inline(always)]
fn is_ours(segment: &Segment) -> bool {
    let mut door = Door {
        address: segment.destination,
        port: u32::from(segment.port),
    };
    // SAFETY: only whether there is a value is looked at.
    if unsafe { DOORS.get(&door) }.is_some() {
        return true;
    }
    door.address = [0; 16];
    if segment.is_ipv4 {
        door.address[10] = 0xff;
        door.address[11] = 0xff;
    }
    // SAFETY: as above.
    unsafe { DOORS.get(&door) }.is_some()
}

#[inline(always)]
fn is_blocked(segment: &Segment, settings: &Settings) -> bool {
    let source = &segment.source;
    if segment.is_ipv4 {
        let address = [source[12], source[13], source[14], source[15]];
        settings.prefixes4 > 0 && BLOCK4.get(Key::new(32, address)).is_some()
    } else {
        settings.prefixes6 > 0 && BLOCK6.get(Key::new(128, *source)).is_some()
    }
}

/// Meters a SYN of its source; of IPv6 that is a network of 64 bits, which one host has to itself.
///
/// Two CPUs that meter one source at the same moment may let one SYN too many through, no more.
#[inline(always)]
fn may_open(segment: &Segment, settings: &Settings) -> bool {
    let mut source = segment.source;
    if !segment.is_ipv4 {
        let mut at = 8;
        while at < 16 {
            source[at] = 0;
            at += 1;
        }
    }
    // SAFETY: the helper has no conditions.
    let now = unsafe { bpf_ktime_get_ns() };
    match SOURCES.get_ptr_mut(&source) {
        Some(paid) => {
            // SAFETY: one word of a map's element, which others may write: an old value is good enough.
            let before = unsafe { paid.read_volatile() };
            match meter(before, now, settings.syn_cost, settings.syn_credit) {
                Some(then) => {
                    // SAFETY: as above.
                    unsafe { paid.write_volatile(then) };
                    true
                }
                None => false,
            }
        }
        None => {
            // A table that is full forgets the least used; if even that fails, the SYN passes.
            let _ = SOURCES.insert(&source, now + settings.syn_cost, 0);
            true
        }
    }
}

/// Tells the gateway of a dropped packet now and then: an attacker must not fill the ring.
#[inline(always)]
fn tell(segment: &Segment, verdict: Verdict) {
    let Some(told) = TOLD.get_ptr_mut(0) else { return };
    // SAFETY: the helper has no conditions.
    let now = unsafe { bpf_ktime_get_ns() };
    // SAFETY: the element is this CPU's own.
    if now.wrapping_sub(unsafe { *told }) < EVENT_INTERVAL {
        return;
    }
    // SAFETY: as above.
    unsafe { *told = now };
    if let Some(mut entry) = EVENTS.reserve::<Event>(0) {
        entry.write(Event {
            source: segment.source,
            port: u32::from(segment.port),
            verdict: verdict as u32,
        });
        entry.submit(0);
    }
}

/// Reads the headers; what the packet is, if it is no TCP segment that can be judged.
#[inline(always)]
fn read(ctx: &XdpContext) -> Result<Segment, Verdict> {
    let (mut kind, mut at) = (be16(bytes(ctx, ETHERNET - 2)?), ETHERNET);
    for _ in 0..MAX_TAGS {
        if kind != TYPE_VLAN && kind != TYPE_SERVICE_VLAN {
            break;
        }
        kind = be16(bytes(ctx, at + 2)?);
        at += TAG;
    }
    let addressed = match kind {
        TYPE_IPV4 => ipv4(ctx, at)?,
        TYPE_IPV6 => ipv6(ctx, at)?,
        TYPE_VLAN | TYPE_SERVICE_VLAN => return Err(Verdict::Unreadable),
        _ => return Err(Verdict::Other),
    };
    let tcp: [u8; 20] = bytes(ctx, addressed.at)?;
    Ok(Segment {
        source: addressed.source,
        destination: addressed.destination,
        port: u16::from_be_bytes([tcp[2], tcp[3]]),
        flags: tcp[13],
        is_ipv4: addressed.is_ipv4,
    })
}

#[inline(always)]
fn ipv4(ctx: &XdpContext, at: usize) -> Result<Addressed, Verdict> {
    let header: [u8; 20] = bytes(ctx, at)?;
    let length = usize::from(header[0] & 0x0f) * 4;
    if header[0] >> 4 != 4 || length < 20 {
        return Err(Verdict::Unreadable);
    }
    if header[9] != PROTOCOL_TCP {
        return Err(Verdict::Other);
    }
    if u16::from_be_bytes([header[6], header[7]]) & 0x1fff != 0 {
        return Err(Verdict::Fragment);
    }
    Ok(Addressed {
        source: mapped([header[12], header[13], header[14], header[15]]),
        destination: mapped([header[16], header[17], header[18], header[19]]),
        is_ipv4: true,
        at: at + length,
    })
}

#[inline(always)]
fn mapped(address: [u8; 4]) -> [u8; 16] {
    let [a, b, c, d] = address;
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d]
}

#[inline(always)]
fn ipv6(ctx: &XdpContext, at: usize) -> Result<Addressed, Verdict> {
    let header: [u8; 8] = bytes(ctx, at)?;
    if header[0] >> 4 != 6 {
        return Err(Verdict::Unreadable);
    }
    let source = bytes(ctx, at + 8)?;
    let destination = bytes(ctx, at + 24)?;
    let (mut next, mut at) = (header[6], at + 40);
    for _ in 0..MAX_EXTENSIONS {
        if next == PROTOCOL_TCP {
            break;
        }
        let is_fragment = next == PROTOCOL_FRAGMENT;
        let unit = match next {
            PROTOCOL_HOP_BY_HOP | PROTOCOL_ROUTING | PROTOCOL_DESTINATION => 8,
            PROTOCOL_FRAGMENT => 0,
            PROTOCOL_AUTHENTICATION => 4,
            _ => return Err(Verdict::Other),
        };
        let extension: [u8; 4] = bytes(ctx, at)?;
        if is_fragment && u16::from_be_bytes([extension[2], extension[3]]) & 0xfff8 != 0 {
            return Err(Verdict::Fragment);
        }
        next = extension[0];
        // Counted in units of 8 beyond the first 8 bytes; of authentication in units of 4. A fragment's has no length.
        at += 8 + usize::from(extension[1]) * unit;
    }
    if next != PROTOCOL_TCP {
        return Err(Verdict::Unreadable);
    }
    Ok(Addressed {
        source,
        destination,
        is_ipv4: false,
        at,
    })
}

#[inline(always)]
fn be16(bytes: [u8; 2]) -> u16 {
    u16::from_be_bytes(bytes)
}

/// Bytes of the packet from here, if it has them.
#[inline(always)]
fn bytes<const N: usize>(ctx: &XdpContext, at: usize) -> Result<[u8; N], Verdict> {
    let (start, end) = (ctx.data(), ctx.data_end());
    if at > FURTHEST || start + at + N > end {
        return Err(Verdict::Unreadable);
    }
    // SAFETY: the bytes lie between the start and the end of the packet, and an array of bytes has no alignment.
    Ok(unsafe { *((start + at) as *const [u8; N]) })
}
