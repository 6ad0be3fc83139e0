//! Which addresses a delivery may connect to, and through which proxy. Asked about the address actually connected to, on every attempt, so that
//! a name which changes its answer between check and connect gains nothing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use crate::config::Secret;

/// The addresses of cloud metadata services: reachable only when listed alone, as a /32 or /128.
const METADATA: [IpAddr; 7] = [
    IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 2)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 23)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
];

#[derive(Debug, Clone, Default)]
pub struct Rules {
    allow: Vec<IpNet>,
    proxy: Option<Secret>,
}

impl Rules {
    pub fn new(allow: Vec<IpNet>) -> Self {
        Self { allow, proxy: None }
    }

    /// The same rules, with the proxy that all requests go through.
    #[must_use]
    pub fn through(self, proxy: Option<Secret>) -> Self {
        Self { proxy, ..self }
    }

    pub fn proxy(&self) -> Option<&Secret> {
        self.proxy.as_ref()
    }

    pub fn permit(&self, address: IpAddr) -> bool {
        let plain = embedded(address).map_or(address, IpAddr::V4);
        if METADATA.contains(&plain) {
            return self.allow.iter().any(|net| net.addr() == plain && net.prefix_len() == net.max_prefix_len());
        }
        !is_special(plain) || self.allow.iter().any(|net| net.contains(&address) || net.contains(&plain))
    }
}

/// The IPv4 address inside an IPv6 form of one: mapped, compatible, NAT64, 6to4.
fn embedded(address: IpAddr) -> Option<Ipv4Addr> {
    let IpAddr::V6(v6) = address else { return None };
    let parts = v6.segments();
    let tail = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        Ipv4Addr::new(a, b, c, d)
    };
    match parts {
        [0, 0, 0, 0, 0, 0xffff, high, low] => Some(tail(high, low)),
        // ::1 and :: are addresses of their own.
        [0, 0, 0, 0, 0, 0, high, low] if high != 0 => Some(tail(high, low)),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some(tail(high, low)),
        [0x2002, high, low, ..] => Some(tail(high, low)),
        _ => None,
    }
}

fn is_special(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_special_v4(v4),
        IpAddr::V6(v6) => is_special_v6(v6),
    }
}

fn is_special_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    address.is_loopback()
        || address.is_private()
        || address.is_link_local()
        || address.is_multicast()
        || a == 0
        || a >= 240
        || (a == 100 && (64..128).contains(&b))
        || (a == 198 && (b == 18 || b == 19))
        || matches!((a, b, c), (192, 0, 0 | 2) | (192, 88, 99) | (198, 51, 100) | (203, 0, 113))
}

fn is_special_v6(address: Ipv6Addr) -> bool {
    let parts = address.segments();
    let first = parts[0];
    address.is_loopback()
        || address.is_unspecified()
        || address.is_multicast()
        // Translation inside a network: where the IPv4 address stands in it is that network's own affair.
        || parts[..3] == [0x64, 0xff9b, 1]
        || first & 0xfe00 == 0xfc00
        || first & 0xffc0 == 0xfe80
        || first & 0xffc0 == 0xfec0
        // Documentation, Teredo, benchmarks and ORCHID, discard.
        || (first == 0x2001 && (parts[1] == 0xdb8 || parts[1] < 0x200))
        || (first == 0x3fff && parts[1] < 0x1000)
        || (first == 0x100 && parts[1..4] == [0, 0, 0])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(allow: &[&str]) -> Rules {
        Rules::new(allow.iter().map(|net| net.parse().unwrap()).collect())
    }

    #[test]
    fn special_addresses_are_forbidden_in_all_their_forms() {
        for address in [
            "127.0.0.1",
            "127.9.9.9",
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "0.0.0.0",
            "0.1.2.3",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "198.18.0.1",
            "198.19.255.255",
            "192.0.0.1",
            "192.0.2.1",
            "198.51.100.1",
            "203.0.113.1",
            "::",
            "::1",
            "fe80::1",
            "fec0::1",
            "fc00::1",
            "fd12::1",
            "ff02::1",
            "2001:db8::1",
            "2001::1",
            "100::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::a00:1",
            "64:ff9b:1:a9fe:a9:fe00:808:808",
            "168.63.129.16",
            "2002:7f00:1::1",
            "2002:a00:1::",
            "169.254.169.254",
            "::ffff:169.254.169.254",
            "fd00:ec2::254",
        ] {
            assert!(!rules(&[]).permit(address.parse().unwrap()), "{address}");
        }
        for address in
            ["8.8.8.8", "1.1.1.1", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]
        {
            assert!(rules(&[]).permit(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn an_allowed_network_opens_only_itself() {
        let rules = rules(&["10.1.0.0/16", "127.0.0.0/8"]);
        assert!(rules.permit("10.1.2.3".parse().unwrap()));
        assert!(rules.permit("::ffff:10.1.2.3".parse().unwrap()));
        assert!(!rules.permit("10.2.0.1".parse().unwrap()));
    }

    #[test]
    fn metadata_needs_its_own_exact_line() {
        let metadata: IpAddr = "169.254.169.254".parse().unwrap();
        assert!(!rules(&["169.254.0.0/16", "0.0.0.0/0"]).permit(metadata));
        assert!(rules(&["169.254.169.254/32"]).permit(metadata));
    }
}
