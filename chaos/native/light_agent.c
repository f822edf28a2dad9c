/* A prompt in; what cursor-agent would print for it, out: so small that a thousand of them run at once.
 *
 * `light: count=5 pause_ms=0 bytes=10` in the prompt: so many deltas of so many bytes, with a pause before each.
 * It knows no tools, no sessions and no failures: for those there is the stand-in in tests/agent.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *USUAL_HELP =
    "Usage: agent [options] [command] [prompt...]\n\nStart the Cursor Agent\n\n"
    "  -p, --print\n  --output-format <format>\n  --stream-partial-output\n  --mode <mode>\n  --resume [chatId]\n"
    "  --model <model>\n  --list-models\n  --trust\n  --workspace <path>\n  --add-dir <path>\n";

static char prompt[1 << 20];

static long setting(const char *name, long usual) {
    const char *line = strstr(prompt, "light:"), *next;
    if (line == NULL) return usual;
    while ((next = strstr(line + 1, "light:")) != NULL) line = next;
    const char *found = strstr(line, name);
    return found == NULL ? usual : strtol(found + strlen(name), NULL, 10);
}

static void sleep_ms(long ms) {
    struct timespec left = {ms / 1000, ms % 1000 * 1000000};
    while (ms > 0 && nanosleep(&left, &left) != 0) {
    }
}

static void say(const char *session, const char *text, int is_delta) {
    printf("{\"type\":\"assistant\",\"message\":{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"%s\"}]},"
           "\"session_id\":\"%s\"%s}\n",
           text, session, is_delta ? ",\"timestamp_ms\":1800000000000" : "");
    fflush(stdout);
}

int main(int count, char **words) {
    for (int nth = 1; nth < count; nth++) {
        if (strcmp(words[nth], "--version") == 0) return puts("2026.05.01-11a4b6e") < 0;
        if (strcmp(words[nth], "--help") == 0) return puts(USUAL_HELP) < 0;
        if (strcmp(words[nth], "--list-models") == 0)
            return puts("Available models\n\nauto - Auto (current, default)\n") < 0;
    }
    strncpy(prompt, words[count - 1], sizeof prompt - 1);
    if (strstr(prompt, "light:") == NULL) {
        size_t size = fread(prompt, 1, sizeof prompt - 1, stdin);
        prompt[size] = 0;
    }
    long deltas = setting("count=", 5), pause_ms = setting("pause_ms=", 0), bytes = setting("bytes=", 10);
    char session[64], *delta = malloc(bytes + 1), *all = malloc(deltas * bytes + 1);
    if (delta == NULL || all == NULL) return 1;
    snprintf(session, sizeof session, "00000000-0000-4000-8000-%012d", getpid());
    printf("{\"type\":\"system\",\"subtype\":\"init\",\"apiKeySource\":\"login\",\"cwd\":\"/\",\"session_id\":\"%s\","
           "\"model\":\"Auto\",\"permissionMode\":\"default\"}\n",
           session);
    fflush(stdout);
    for (long nth = 0; nth < deltas; nth++) {
        sleep_ms(pause_ms);
        for (long at = 0; at < bytes; at++) delta[at] = "0123456789"[(nth + at) % 10];
        delta[bytes] = 0;
        memcpy(all + nth * bytes, delta, bytes);
        say(session, delta, 1);
    }
    all[deltas * bytes] = 0;
    say(session, all, 0);
    printf("{\"type\":\"result\",\"subtype\":\"success\",\"duration_ms\":1,\"duration_api_ms\":1,\"is_error\":false,"
           "\"result\":\"%s\",\"session_id\":\"%s\",\"request_id\":\"%s\","
           "\"usage\":{\"inputTokens\":1000,\"outputTokens\":%ld,\"cacheReadTokens\":0,\"cacheWriteTokens\":0}}\n",
           all, session, session, deltas * bytes / 4);
    return 0;
}
