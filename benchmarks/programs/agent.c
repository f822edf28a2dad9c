/* A prompt in; a recorded session as cursor-agent would write it, out: a stand-in that costs next to nothing.
 *
 * The prompt, on standard input or the last argument, says what is written; sessions lie beside the program as NAME.ndjson.
 *   replay NAME           every line with a write of its own, as the real one does
 *   replay NAME blocks    in pieces of 64 kB, as a program would that buffers its output
 *   paced EVENTS RATE     so many text deltas, RATE of them a second, each telling when it was written: @nanoseconds@
 *   silent                one delta, and then nothing until somebody ends it
 * What the gateway asks at its start is answered: --version, --help, --list-models, and the account's commands.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BLOCK 65536
#define SESSION "\"session_id\":\"6f1d2c3b-0000-4000-8000-000000000001\""

static const char HELP[] =
    "Usage: agent [options] [command] [prompt...]\n\nStart the Cursor Agent\n\nOptions:\n"
    "  -v, --version  -p, --print  --output-format <format>  --stream-partial-output  --mode <mode>  --resume [chatId]\n"
    "  --model <model>  --list-models  -f, --force  --trust  --workspace <path-or-name>  --add-dir <path>\n"
    "  -H, --header <header>  --approve-mcps  -h, --help\n";

static const struct { const char *word, *answer; } ANSWERS[] = {
    {"--version", "2026.10.01-be9c4a7\n"},
    {"--help", HELP},
    {"--list-models", "Available models\n\nauto - Auto (current, default)\nopus-4.6 - Opus 4.6\n"},
    {"models", "Available models\n\nauto - Auto (current, default)\nopus-4.6 - Opus 4.6\n"},
    {"status", "✓ Logged in as user@example.com\n"},
    {"whoami", "✓ Logged in as user@example.com\n"},
    {"about", "About Cursor CLI\n\nCLI Version         2026.10.01-be9c4a7\nUser Email          user@example.com\n"},
    {"create-chat", "6f1d2c3b-0000-4000-8000-000000000001\n"},
};

static void put(const char *data, size_t size) {
    while (size > 0) {
        ssize_t written = write(STDOUT_FILENO, data, size);
        if (written < 0) {
            if (errno == EINTR) continue;
            _exit(1); /* nobody reads any more */
        }
        data += written;
        size -= (size_t)written;
    }
}

static void say(const char *text) { put(text, strlen(text)); }

static long long nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void wait_until(long long when) {
    struct timespec then = {when / 1000000000, when % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &then, NULL) == EINTR) {}
}

static void begin(void) {
    say("{\"type\":\"system\",\"subtype\":\"init\",\"apiKeySource\":\"login\",\"cwd\":\"/w\",\"model\":\"Auto\"," SESSION "}\n");
}

static void delta(const char *text, long number) {
    char line[512];
    int size = snprintf(line, sizeof line,
        "{\"type\":\"assistant\",\"message\":{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"%s\"}]},"
        SESSION ",\"timestamp_ms\":%lld}\n", text, 1790000000000LL + number);
    put(line, (size_t)size);
}

static int replay(const char *program, const char *name, int in_blocks) {
    char path[4096];
    const char *slash = strrchr(program, '/');
    snprintf(path, sizeof path, "%.*s/%s.ndjson", slash ? (int)(slash - program) : 1, slash ? program : ".", name);
    struct stat status;
    int file = open(path, O_RDONLY);
    if (file < 0 || fstat(file, &status) < 0) { perror(path); return 1; }
    size_t size = (size_t)status.st_size;
    const char *data = mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, file, 0);
    if (data == MAP_FAILED) { perror(path); return 1; }
    const char *end = data + size;
    while (data < end) {
        size_t left = (size_t)(end - data), piece = left < BLOCK ? left : BLOCK;
        if (!in_blocks) {
            const char *line_end = memchr(data, '\n', left);
            piece = line_end ? (size_t)(line_end - data) + 1 : left;
        }
        put(data, piece);
        data += piece;
    }
    return 0;
}

static int paced(long events, double rate) {
    char *text = malloc((size_t)events * 24 + 1), *rest = text; /* the answer, which the result repeats */
    long long start = nanoseconds();
    if (!text) return 1;
    *text = 0;
    begin();
    for (long number = 0; number < events; number++) {
        char stamp[24];
        wait_until(start + (long long)((double)number / rate * 1e9));
        snprintf(stamp, sizeof stamp, "@%lld@", nanoseconds());
        delta(stamp, number);
        rest = stpcpy(rest, stamp);
    }
    say("{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":false,\"duration_ms\":1,\"result\":\"");
    say(text);
    say("\",\"usage\":{\"inputTokens\":1,\"outputTokens\":1,\"cacheReadTokens\":0,\"cacheWriteTokens\":0}," SESSION "}\n");
    return 0;
}

int main(int count, char **words) {
    for (int place = 1; place < count; place++)
        for (size_t known = 0; known < sizeof ANSWERS / sizeof *ANSWERS; known++)
            if (strcmp(words[place], ANSWERS[known].word) == 0) { say(ANSWERS[known].answer); return 0; }
    static char given[4096];
    const char *prompt = count > 1 ? words[count - 1] : "";
    if (strncmp(prompt, "--", 2) == 0) { /* an option: the prompt is not among the arguments */
        given[fread(given, 1, sizeof given - 1, stdin)] = 0;
        prompt = given;
    }
    char name[64], how[16] = "";
    long events;
    double rate;
    if (sscanf(prompt, "replay %63[a-z0-9-] %15s", name, how) >= 1) return replay(words[0], name, strcmp(how, "blocks") == 0);
    if (sscanf(prompt, "paced %ld %lf", &events, &rate) == 2 && events > 0 && rate > 0) return paced(events, rate);
    if (strcmp(prompt, "silent") == 0) { begin(); delta("Wait.", 0); for (;;) pause(); }
    fprintf(stderr, "agent: `%s` is not a prompt that this stand-in knows\n", prompt);
    return 2;
}
