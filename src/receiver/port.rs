//! Ports for servers that are started in a moment.
//!
//! Not what the system would hand out: between asking for such a port and listening on it, any other listener or any
//! connection on its way out may be given the same one.

use std::io;
use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

/// Below what Linux hands out by itself (from 32768).
const FIRST: u32 = 20_000;
const COUNT: u32 = 12_000;

/// A port that nobody listens on, and that this process has not handed out before.
pub fn free_port() -> io::Result<u16> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Two processes that look at the same moment begin at different places.
    let begin = std::process::id().wrapping_mul(7_919);
    for _ in 0..COUNT {
        let port = (FIRST + begin.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    Err(io::Error::new(io::ErrorKind::AddrInUse, "no free port"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_is_handed_out_twice_or_by_the_system_as_well() {
        let ports: Vec<u16> = (0..200).map(|_| free_port().unwrap()).collect();
        let distinct: std::collections::HashSet<&u16> = ports.iter().collect();
        assert_eq!(distinct.len(), 200);
        assert!(ports.iter().all(|port| u32::from(*port) < 32_768));
    }
}
