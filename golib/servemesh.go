package redox

import "time"

// Card is what the other nodes must know of this one, as long as some of them are not connected.
func (s *servedData) Card(rank int) ([]byte, error) {
	if err := s.connect(rank); err != nil || s.mesh == nil || s.mesh.Complete() {
		return nil, err
	}
	return s.mesh.CardJSON()
}

// Meet gives the mesh the cards of all nodes.
func (s *servedData) Meet(cards []byte, timeout time.Duration) error {
	return s.mesh.Meet(cards, timeout)
}

// connect makes the mesh if samples are to be exchanged with other nodes.
func (s *servedData) connect(rank int) error {
	if s.mesh != nil || s.alone {
		return nil
	}
	options := s.asked(rank)
	for name, value := range s.network {
		options[name] = value
	}
	text, err := encode(options)
	if err != nil {
		return err
	}
	var o meshOptions
	if err := decode(text, &o); err != nil {
		return err
	}
	p, err := s.dataset.newPlan(&o.planOptions, s.resolver(nil))
	if err != nil {
		return err
	}
	cut, _, err := o.planWorld()
	if err != nil {
		return err
	}
	if !exchanges(p, cut) {
		s.alone = true
		return nil
	}
	s.mesh, err = s.dataset.newMesh(&o, p)
	return err
}
