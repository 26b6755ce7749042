package bench;

import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;

/** {@code --name value} pairs; a name that nobody asks for is refused, so that a typing error measures nothing. */
final class Options {
    private final Map<String, String> given = new HashMap<>();
    private final Set<String> asked = new HashSet<>();

    /** The first word is the command. */
    Options(String[] words) {
        if (words.length % 2 == 0) {
            throw new IllegalArgumentException("options come as --name value");
        }
        for (int i = 1; i < words.length; i += 2) {
            given.put(words[i].substring(2), words[i + 1]);
        }
    }

    String text(String name) {
        String value = text(name, null);
        if (value == null) {
            throw new IllegalArgumentException("--" + name + " is missing");
        }
        return value;
    }

    String text(String name, String fallback) {
        asked.add(name);
        return given.getOrDefault(name, fallback);
    }

    int number(String name, int fallback) {
        String value = text(name, null);
        return value == null ? fallback : Integer.parseInt(value);
    }

    /** To be called when every option has been read. */
    void refuseUnknown() {
        Set<String> unknown = new HashSet<>(given.keySet());
        unknown.removeAll(asked);
        if (!unknown.isEmpty()) {
            throw new IllegalArgumentException("unknown options: " + unknown + "; known here: " + asked);
        }
    }
}
