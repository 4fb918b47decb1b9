package gossip

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strings"
)

// ParseKeyring reads a [Config.Keyring]: one or more keys of 16, 24 or 32 bytes, each as hex or base64, separated
// by commas.
func ParseKeyring(text string) (keys [][]byte, err error) {
	for item := range strings.SplitSeq(text, ",") {
		key, err := decodeKey(strings.TrimSpace(item))
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// decodeKey returns an error that does not show the key.
func decodeKey(s string) ([]byte, error) {
	decoders := []func(string) ([]byte, error){
		hex.DecodeString, base64.StdEncoding.DecodeString, base64.URLEncoding.DecodeString, base64.RawURLEncoding.DecodeString,
	}
	for _, decode := range decoders {
		if key, err := decode(s); err == nil && (len(key) == 16 || len(key) == 24 || len(key) == 32) {
			return key, nil
		}
	}
	return nil, errors.New("not a key of 16, 24 or 32 bytes in hex or base64 (try: openssl rand -hex 32)")
}
