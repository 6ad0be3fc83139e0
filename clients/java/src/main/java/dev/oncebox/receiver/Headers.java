package dev.oncebox.receiver;

import java.util.List;
import java.util.Map;

/** Headers, looked up without regard to case. A header that came twice is never taken for one that came once. */
final class Headers {
    private Headers() {}

    static List<String> values(Map<String, List<String>> headers, String name) {
        return headers.entrySet().stream()
                .filter(header -> name.equalsIgnoreCase(header.getKey()))
                .flatMap(header -> header.getValue().stream())
                .toList();
    }

    static boolean isPrintable(String text) {
        return !text.isEmpty() && text.chars().allMatch(one -> ' ' <= one && one <= '~');
    }
}
