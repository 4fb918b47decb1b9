package stores

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/keyway-go/keyway/ring"
)

// ErrEmpty means that a store holds nothing of a cluster whose workers are at work.
var ErrEmpty = fmt.Errorf("%w: the store is empty, and active workers of the cluster use another one: give all members of a cluster the same --store or --redis", ring.ErrSettings)

// NewID returns an identity for a store that has none.
func NewID() ring.StoreID {
	var random [4]byte
	rand.Read(random[:]) // never fails
	return ring.NewStoreID(time.Now(), binary.BigEndian.Uint32(random[:]))
}

// settingsForm is the form in which a store keeps the settings that all sessions must share.
const settingsForm = "partitions=%d replicas=%d load=%g ttl=%d digest=%016x"

// SettingsText returns what a store keeps of settings.
func SettingsText(s ring.Settings) string {
	return fmt.Sprintf(settingsForm, s.Ring.Partitions, s.Ring.ReplicationFactor, s.Ring.Load, s.TTL, s.Digest())
}

// Differ returns a [ring.ErrSettings] that names a setting of ours that is another one in the store, and
// [ErrFields] if text is not of SettingsText.
func Differ(ours ring.Settings, text string) error {
	theirs := ring.Settings{Cluster: ours.Cluster}
	var digest uint64
	if _, err := fmt.Sscanf(text, settingsForm, &theirs.Ring.Partitions, &theirs.Ring.ReplicationFactor, &theirs.Ring.Load, &theirs.TTL, &digest); err != nil {
		return fmt.Errorf("%w: settings %q: %v", ErrFields, text, err)
	}
	d, _ := ours.CompareDigest(theirs, digest) // the texts have shown one
	return fmt.Errorf("%w: %s: %s here, %s in the store: %s", ring.ErrSettings, d.Setting, d.Ours, d.Theirs, d.Remedy)
}

// WhyWait says why a store holds claims back for now; owned is whether it knows any record.
func WhyWait(owned bool) string {
	if owned {
		return "the store was restarted, failed over or lost data: a partition that no living worker owns waits, since a worker that the store forgot may still serve it"
	}
	return "the store has no trace of this cluster: nothing is served yet, since workers may still rely on data that it lost; if the cluster is new, start it with --new-cluster (Config.NewCluster)"
}
